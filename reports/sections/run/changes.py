"""The section on what-if changes: the run with one change of its scenario at a time, by group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from reports.run import Run
from reports.sections.model import (
    PAGE,
    BarGroup,
    Block,
    Column,
    Fold,
    Listing,
    RankedBar,
    RankedBars,
    ReportSection,
    ReportTable,
    Words,
    on_page,
    on_terminal,
)
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import records

_TITLE = "One change at a time, each simulated"
TITLES = {
    "setting": f"{_TITLE}: settings, which cost nothing",
    "hardware": f"{_TITLE}: hardware, which must be bought",
    "more": f"{_TITLE}: twice the GPUs, gains of all together",
    "diagnosis": f"{_TITLE}: diagnosis, which nobody can buy",
    "": _TITLE,  # releases that had no groups
}
# Groups whose savings a page draws: each replaces the scenario as it is, on as many GPUs.
_DRAWN = {
    "setting": "Free: settings",
    "hardware": "Bought: hardware",
    "diagnosis": "Diagnosis: nobody can buy it, but it shows what costs time",
    "": "Changes",
}
_NOTHING = "No change saves time."
_SAVED = "Time that each change saves"
_SAVED_NOTE = "Bar: time saved; its track: the whole step, {step}."
_BEST = {"setting": "free", "hardware": "bought", "more": "twice the GPUs", "diagnosis": "diagnosis", "": "change"}
COLUMNS = ["change", "step", "samples/s", "$", "transfer", "waiting", "gain"]
_PER_GPU = "gain per GPU"  # a further column, of changes that double the GPUs
_NOT_ASKED = "Further changes are not simulated: the option --what-if tries them one at a time."
SHARES_NOTE = (
    "Transfer and waiting: shares of a step in which the mean rank only communicates, or only waits for other ranks."
)
_COST_NOTE = "$: price of 10^9 samples, at the scenario's price of a GPU hour even if the hardware is changed."
RANGE_NOTE = (
    "A range instead of a gain: the interval of the gain over the steps of all draws includes 0, so the change may have"
    " no effect."
)
_DRAWS_NOTE = "Gains are medians over the steps of all draws; step and samples/s are those of the mean draw."
NOT_TRIED: Final = "not tried"  # the status of changes for which no time was left
_REPLAN = "; --replan plans them anew"
# A smaller gain is shown as a number, though its interval has both signs.
_NO_GAIN = 0.0005
_MAY_LACK = {"samples/s": "samples_per_s", "$": "usd_per_1e9_samples"}
_SHARES = ("transfer", "waiting")


def rank_changes(run: Run) -> pd.DataFrame:
    """Return `what_if` with shares of a step and gains: the scenario as it is, then by group, the best first.

    `transfer_share` and `wait_share` are of a step. `ratio` is samples per second, or steps per second where there are
    no samples, over that of the first row, in the mean draw. `gain` is over the steps of all draws, between `gain_low`
    and `gain_high`; `is_clear` unless these have both signs. Unsimulated changes and unknown prices are nan.
    """
    frame = run.what_if.copy()
    done = frame["status"] == "done"
    numbers = ["step_ns", "samples_per_s", "usd_per_1e9_samples", "transfer_ns", "wait_ns"]
    numbers += ["speed", "speed_low", "speed_high"]
    frame[numbers] = frame[numbers].astype(float).where(done)
    known = ["samples_per_s", "usd_per_1e9_samples", "speed", "speed_low", "speed_high"]
    frame[known] = frame[known].replace(0.0, np.nan)
    for name in ("transfer", "wait"):
        frame[f"{name}_share"] = frame[f"{name}_ns"] / frame["step_ns"]
    quickness = frame["samples_per_s"] if frame["samples_per_s"].head(1).notna().any() else 1 / frame["step_ns"]
    ratio = quickness / (quickness.iloc[0] if len(quickness) else np.nan)
    frame["ratio"] = ratio
    for bound in ("", "_low", "_high"):  # releases without intervals had the ratio alone
        frame[f"gain{bound}"] = frame.pop(f"speed{bound}").fillna(ratio) - 1
    is_within = (frame["gain_low"] <= 0) & (frame["gain_high"] >= 0)
    is_wide = frame[["gain_low", "gain_high"]].abs().max(axis=1) >= _NO_GAIN
    frame["is_clear"] = ~(is_within & is_wide)
    frame["group"] = frame["group"].where(frame["group"].isin(list(TITLES)), "")
    others = frame.assign(order=frame["group"].map(list(TITLES).index)).iloc[1:]
    by = ["order", "gain"]
    others = others.sort_values(by, ascending=[True, False], kind="stable", na_position="last").drop(columns="order")
    return pd.concat([frame.iloc[:1], others], ignore_index=True)


def best_of_groups(run: Run) -> list[str]:
    """Return for each group which change gains most, and how much; groups of which none gains are left out.

    Only changes on as many GPUs are compared.
    """
    changes = rank_changes(run).iloc[1:]
    is_equal = changes["group"] != "more"
    gaining = changes[((changes["gain"] > 0) & changes["is_clear"] & is_equal).to_numpy(bool)]
    first = gaining.drop_duplicates("group")
    return [
        f"{_BEST[row['group']]}: {row['change']}, {text.signed_percent(row['gain'])} throughput"
        for row in records(first)
    ]


def best(run: Run) -> str:
    """Return which change of each group gains most, in a sentence without a full stop; "" where none gains."""
    said = best_of_groups(run)
    return f"largest single gains: {'; '.join(said)}" if said else ""


def tables(changes: pd.DataFrame) -> Iterator[ReportTable]:
    """Yield the table of each group of `rank_changes`, whose rows begin with the scenario as it is.

    Rows are the changes whose simulation completed; samples/s and $ have no column where none is known.
    """
    done = changes[(changes["status"] == "done").to_numpy(bool)]
    absent = [column for column, name in _MAY_LACK.items() if not done[name].notna().any()]
    columns = [column for column in COLUMNS if column not in absent]
    for group, title in TITLES.items():
        own = done.iloc[1:][(done["group"].iloc[1:] == group).to_numpy(bool)]
        if not len(own):
            continue
        shown = [_cells(row) for row in records(pd.concat([done.iloc[:1], own]))]
        shown[0] |= {"gain": "", _PER_GPU: ""}
        own_columns = [*columns, _PER_GPU] if group == "more" else columns
        heads = [Column(column, PAGE) if column in _SHARES else Column(column) for column in own_columns]
        rows, best = [[row[column] for column in own_columns] for row in shown], float(own["gain"].max())
        yield ReportTable(title, heads, rows, note=SHARES_NOTE, raw={"best": best})


def _cells(row: dict[str, Any]) -> dict[str, str]:
    cells = [
        row["change"],
        text.duration(row["step_ns"]),
        text.number(row["samples_per_s"]),
        text.to_three_digits(row["usd_per_1e9_samples"]),
        text.percent(row["transfer_share"]),
        text.percent(row["wait_share"]),
        _gain(row),
    ]
    return {**dict(zip(COLUMNS, cells, strict=True)), _PER_GPU: text.signed_percent((1 + row["gain"]) / 2 - 1)}


def _gain(row: dict[str, Any]) -> str:
    if row["is_clear"]:
        return text.signed_percent(row["gain"])
    return f"{100 * row['gain_low']:+.1f} to {100 * row['gain_high']:+.1f} %"


def notes(changes: pd.DataFrame) -> list[str]:
    """Return paragraphs on how to read the numbers, and on which changes have moved tables."""
    done = changes[(changes["status"] == "done").to_numpy(bool)]
    said = [_COST_NOTE] if done["usd_per_1e9_samples"].notna().any() else []
    if ((done["gain"] - done["ratio"] + 1).abs() >= _NO_GAIN).any():
        said.append(_DRAWS_NOTE)
    if not done["is_clear"].all():
        said.append(RANGE_NOTE)
    anew = [row for row in records(done.iloc[1:]) if row["tables_moved"]]
    moved = ", ".join(f"{row['change']} ({row['tables_moved']} of {row['tables']} tables moved)" for row in anew)
    if moved:
        said.append(f"Tables placed anew: {moved}. All other changes keep the plan of the tables{_REPLAN}.")
    elif done["tables"].max() > 0:
        said.append(f"All changes keep the plan of the tables{_REPLAN}.")
    return said


def not_played(changes: pd.DataFrame) -> list[str]:
    """Return a sentence for each change whose simulation did not complete, and one for those that were not tried."""
    failed = [row for row in records(changes) if row["status"] not in ("done", NOT_TRIED)]
    said = [f"not simulated: {row['change']}: {row['sentence']}" for row in failed]
    return [*said, *not_tried(changes)]


def not_tried(changes: pd.DataFrame) -> list[str]:
    """Return in one sentence which changes were not simulated for lack of time, and why; none if all were."""
    left = changes[(changes["status"] == NOT_TRIED).to_numpy(bool)]
    return [f"not tried ({left['sentence'].iloc[0]}): {', '.join(left['change'])}"] if len(left) else []


def options(changes: pd.DataFrame) -> list[str]:
    """Return the command-line options that make each change."""
    done = changes[(changes["status"] == "done").to_numpy(bool)]
    return [f"{row['change']}: {row['options']}" for row in records(done) if row["options"]]


def saving_bars(changes: pd.DataFrame) -> Iterator[RankedBars]:
    """Yield bars of the time that each change saves of a step for as many samples, the largest of each group first."""
    done = changes.iloc[1:][(changes["status"].iloc[1:] == "done").to_numpy(bool)]
    drawn = done[done["group"].isin(list(_DRAWN)).to_numpy(bool)]
    gaining = drawn[(drawn["is_clear"] & (drawn["gain"] >= _NO_GAIN)).to_numpy(bool)]
    if not len(gaining):
        return
    step_ns, bars = float(changes["step_ns"].iloc[0]), dict[str, list[RankedBar]]()
    for row in records(gaining):
        bars.setdefault(row["group"], []).append(_bar(row["change"], row["gain"] / (1 + row["gain"]), step_ns))
    note = _SAVED_NOTE.format(step=text.duration(step_ns))
    if others := len(drawn) - len(gaining):
        note += f" Without a saving: {text.count_words(others, 'other change')}."
    groups = [BarGroup(_DRAWN[group], group, own) for group, own in bars.items()]
    yield RankedBars("saved", _SAVED, groups, note)


def _bar(change: str, share: float, step_ns: float) -> RankedBar:
    return RankedBar(change, share, f"-{text.duration(share * step_ns)} ({text.signed_percent(-share)})")


def _advice_bars(run: Run) -> Iterator[RankedBars]:
    """Yield bars of the changes that are simulated with every prediction."""
    saving = [one for one in run.info.advice if one.saved_ns > 0]
    if saving:
        step_ns = saving[0].saved_ns / saving[0].share
        bars = [_bar(one.change, one.share, step_ns) for one in saving]
        note = _SAVED_NOTE.format(step=text.duration(step_ns))
        yield RankedBars("saved", _SAVED, [BarGroup(_DRAWN["setting"], "setting", bars)], note)


def _bars(view: RunView) -> Iterator[Block]:
    bars = [*saving_bars(rank_changes(view.run))] if len(view.run.what_if) else [*_advice_bars(view.run)]
    yield from bars
    if not len(view.run.what_if):
        yield Words(_NOT_ASKED)
        return
    if not bars:
        yield Words(_NOTHING)
    yield Fold("Changes in numbers", [*_blocks(view)])


def _absent(view: RunView) -> str:
    if len(view.run.what_if) or any(_advice_bars(view.run)):
        return ""
    return _NOT_ASKED if view.run.info.world == "sim" else "Not predicted."


def _blocks(view: RunView) -> Iterator[Block]:
    if not len(view.run.what_if):
        yield Words(_NOT_ASKED)
        return
    changes = rank_changes(view.run)
    yield from tables(changes)
    if said := [*notes(changes), *not_played(changes)]:
        yield Words("\n".join(said))
    yield Listing("Options that make each change", "\n".join(options(changes)))


CHANGES = ReportSection(
    "what-if",
    "What would help",
    [on_page(_bars), on_terminal(_blocks)],
    absent=_absent,
    data=lambda view: {"what_if": rank_changes(view.run)},
)

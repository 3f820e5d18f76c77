"""The page of several runs, differences first; numbers are those of `reports.side_by_side.frames`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

import numpy as np
import pandas as pd

from reports.analysis.step_breakdown import PARTS
from reports.page import charts, theme
from reports.page.blocks import Chart, Page, PageBlock
from reports.page.side_by_side import charts as run_charts
from reports.page.side_by_side import loads
from reports.sections.model import Cell, Fact, Facts, PageLink, ReportTable, Shown, Words
from reports.sections.run.headline import WORLDS, folded, of_recording, thinned, warm_up
from reports.side_by_side.frames import CHANGES, SideBySide
from reports.side_by_side.words import (
    DIFFERENT_BATCHES,
    NUMBERS,
    exposed_shown,
    labels,
    marks,
    medians_shown,
    more,
    no_operations,
    numbers,
    operations_by_change,
    sentences,
    settings_shown,
)
from reports.terminal import text
from reports.terminal.rows import records, written

_DRAWN = 16
_ROWS = 200
_TILES = ["step_ns", "samples_per_s", "compute_ns", "transfer_ns", "wait_ns", "memory_bytes"]


def page(found: SideBySide, hrefs: Sequence[str], tables: str = "") -> Page:
    """Return the whole page; `hrefs` lead to each run's own ("": it has none), `tables` is the path of the tables."""
    where = f"All numbers here are those of the tables in {tables}, of which every column is in docs/reports.md."
    about = [f"Changes are relative to the base, {found.names[0]}."]
    title = f"{text.counted(len(found.names), 'run')} side by side"
    return Page(title=title, about=about, sections=sections(found, hrefs), foot=[where] if tables else [])


def sections(found: SideBySide, hrefs: Sequence[str]) -> list[Shown]:
    """Return the sections: differences, then times, operations, memory, links, balance and plan.

    `hrefs` lead to each run's own page.
    """
    return [
        _glance(found, hrefs),
        _settings(found),
        _parts(found),
        _steps(found),
        _operations(found),
        loads.memory(found),
        loads.links(found),
        loads.balance(found),
        loads.plans(found),
    ]


def _glance(found: SideBySide, hrefs: Sequence[str]) -> Shown:
    said, blocks = sentences(found), list[PageBlock]()
    if len(said) == 1:
        blocks += [Words(said[0]), Facts(_facts(found))]
    elif said:
        blocks.append(Words("", said))
    blocks.append(_runs(found, hrefs))
    notes = [note for name, run in found.runs for note in _notes(name, run.info.complete, run.info.error)]
    for name, run in found.runs:
        of_run = (folded(run.info), thinned(run.info), warm_up(run), of_recording(run))
        notes += [f"{name}: {words}." for words in of_run if words]
    if notes:
        blocks.append(Words("Notes:", notes))
    return Shown("glance", "What differs", blocks)


def _notes(name: str, complete: bool, error: str) -> list[str]:
    return [] if complete else [f"{name} ended early: {error or 'no reason was kept'}."]


def _facts(found: SideBySide) -> list[Fact]:
    base, own = records(found.results)
    facts = []
    for column in sorted(_TILES, key=lambda name: found.batches_differ and name != "samples_per_s"):
        name = PARTS.get(column, NUMBERS[column])
        if not np.isnan(own[column]):
            change = own[CHANGES[column]]
            before = f"{text.signed_percent(change)} against {written(column, base[column])}"
            is_time = column.endswith("_ns") and found.batches_differ
            note = "" if np.isnan(change) else f"of {own['step_samples']:,.0f} samples" if is_time else before
            facts.append(Fact(name, written(column, own[column]), note, float(own[column])))
    return facts


def _runs(found: SideBySide, hrefs: Sequence[str]) -> ReportTable:
    rows: list[list[Cell]] = []
    for label, row, href in zip(labels(found).values(), records(found.results), hrefs, strict=True):
        name: Cell = PageLink(label, href) if href else label
        times = [text.duration(row["step_ns"]), text.signed_percent(row["step_change"])]
        rates = [text.number(row["samples_per_s"]), text.signed_percent(row["samples_change"])]
        about = [row["name"], WORLDS.get(row["world"], row["world"]), f"{row['world_size']:,}", f"{row['steps']:,}"]
        rows.append([name, *about, *times, *rates])
    columns = ["run", "scenario", "", "ranks", "steady steps", "step time", "change", "samples/s", "change"]
    raw = {f"step_ns-{at}": float(value) for at, value in enumerate(found.results["step_ns"])}
    return ReportTable("Runs", columns, rows, left=3, raw=raw)


def _settings(found: SideBySide) -> Shown:
    rows, alike = settings_shown(found), f"{text.counted(found.same_settings, 'setting')} identical"
    if not rows:
        return Shown("settings", "Settings", absent=f"No differences; {alike}.")
    left_out = f"; {len(rows) - _ROWS} more are in settings.csv" if len(rows) > _ROWS else ""
    columns = ["setting", *marks(found.names)]
    cut = [[key, *map(text.told_apart(dict.fromkeys(values), 48).__getitem__, values)] for key, *values in rows[:_ROWS]]
    note = f"{alike[0].upper()}{alike[1:]}{left_out}."
    return Shown(
        "settings", "Settings", [ReportTable("Settings that differ", columns, cut, left=len(columns), note=note)]
    )


def _parts(found: SideBySide) -> Shown:
    frame, blocks = found.results, list[PageBlock]()
    has = frame["compute_ns"].notna()
    if has.any():
        names = [label for label, own in zip(labels(found).values(), has, strict=True) if own]
        layers = {PARTS[name]: (charts.ms(frame.loc[has, name]), color) for name, color in theme.PARTS.items()}
        note = "Means over ranks and steady steps; the parts add up to the mean step."
        note += f" {DIFFERENT_BATCHES}." if found.batches_differ else ""
        drawn = charts.stacked_bars(names, layers, x="ms per step")
        blocks.append(Chart("parts", "Parts of a step", drawn, note))
    if not frame["step_ns"].notna().any():
        return Shown("parts", "Step time and its parts", absent="No rank of any run completed a step.")
    return Shown("parts", "Step time and its parts", [*blocks, _numbers(found)])


def _numbers(found: SideBySide) -> ReportTable:
    """Return a table of every number with its change, a column for each run."""
    frame, rows = found.results, []
    for name, words in numbers(found).items():
        if frame[name].notna().any():
            changes = [text.signed_percent(value) for value in frame[CHANGES[name]].tolist()[1:]]
            first, *others = [written(name, value) for value in frame[name].tolist()]
            pairs = zip(others, changes, strict=True)
            rows.append([words, first, *(cell for pair in pairs for cell in pair)])
    base, *short = marks(found.names)
    columns = ["", base, *(cell for mark in short for cell in (mark, "change"))]
    note = "Step time and samples/s are medians of steady steps; parts of a step and payload are means over ranks."
    note += f" {DIFFERENT_BATCHES}." if found.batches_differ else ""
    raw = {f"compute_ns-{at}": float(value) for at, value in enumerate(frame["compute_ns"]) if not np.isnan(value)}
    return ReportTable("Numbers of the runs", columns, rows, note=note, raw=raw)


def _steps(found: SideBySide) -> Shown:
    by_run = [found.steps[(found.steps["run"] == name).to_numpy(bool)] for name in found.names]
    kept = {label: own for label, own in zip(labels(found).values(), by_run, strict=True) if len(own)}
    if not kept:
        return Shown("steps", "Step times", absent="No rank of any run completed a step.")
    blocks: list[PageBlock] = []
    if any(len(own) > 1 for own in kept.values()):
        drawn = run_charts.over_steps(kept, run_charts.colors(found))
        blocks.append(Chart("steps", "Time of each step", drawn, "From the first rank's start to the last rank's end."))
    rows, early = [], False
    for label, own in kept.items():
        for is_warm_up, group in own.groupby("warm_up", sort=True):
            times = group["step_ns"].median(), group["step_ns"].min(), group["step_ns"].max()
            name, early = f"{label}, warm-up" if is_warm_up else label, early or bool(is_warm_up)
            rows.append([name, f"{len(group):,}", *(text.duration(float(one)) for one in times)])
    note = "Steps that warm a measured run up are not among its others." if early else ""
    blocks.append(ReportTable("All steps", ["run", "steps", "median", "min", "max"], rows, note=note))
    return Shown("steps", "Step times", blocks)


def _operations(found: SideBySide) -> Shown:
    held = list(dict.fromkeys(found.operations["run"].tolist()))
    if not held:
        return Shown("operations", "Operations", absent=no_operations(found))
    pairs = list(islice(operations_by_change(found), _ROWS))
    label = labels(found)
    short = [mark for mark, name in zip(marks(found.names), found.names, strict=True) if name in held]
    drawn_pairs = pairs[:_DRAWN]
    values = {
        label[name]: [float(rows["median_ns"].iloc[at]) for _, rows in drawn_pairs] for at, name in enumerate(held)
    }
    names = [name for name, _ in drawn_pairs]
    drawn = run_charts.dots(names, values, text.duration, run_charts.colors(found), x="ms per step", scale=1e-6)
    count = len(found.operations) // len(held)
    note = "The largest changes first; medians over ranks and steady steps. The ring is the first run."
    title = "Operations that change most" if len(held) > 1 else "Operations"
    blocks: list[PageBlock] = [Chart("operations", title, drawn, note), _operation_table(pairs, short, count)]
    return Shown("operations", "Operations", blocks)


def _operation_table(pairs: Sequence[tuple[str, pd.DataFrame]], short: Sequence[str], count: int) -> ReportTable:
    rows = []
    for name, own in pairs:
        first, *others = medians_shown(own)
        changes, exposed = own["change_ns"].map(more).tolist()[1:], exposed_shown(own)[1:]
        cells = ([median, change, *parts] for median, change, parts in zip(others, changes, exposed, strict=True))
        rows.append([name, own["kind"].iloc[0], first, *chain.from_iterable(cells)])
    columns = ["operation", "kind", short[0]]
    columns += [cell for mark in short[1:] for cell in (mark, "change", "transfer", "waiting")]
    left_out = f" {count - len(pairs)} more are in operations.csv." if count > len(pairs) else ""
    note = f"A dash: not in this run. Transfer and waiting: changes of the mean exposed times.{left_out}"
    return ReportTable("All operations", columns, rows, left=2, note=note, folded=True)

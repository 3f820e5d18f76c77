"""The summary of one run for the terminal and for scripts; numbers come from the run's frames, layout from `text`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from reports.analysis import critical_path
from reports.analysis.by_what import by_what
from reports.analysis.prediction.costs import costs, prices_of
from reports.analysis.prediction.uncertainty import uncertainty
from reports.analysis.step_breakdown import (
    PARTS,
    parts_of_step,
    steady_kept,
    steady_steps,
    step_shown,
    sync_period,
    timed_steps,
    typical_step,
    utilisation_of,
    why_no_step,
)
from reports.run import Run
from reports.terminal import changes, rank_classes, text
from reports.terminal.causes import DOMINANT_TITLE, dominant
from reports.terminal.headline import headline, only, rests_on
from reports.terminal.kernels import shares
from reports.terminal.plans import (
    COSTS_COLUMNS,
    COSTS_NOTE,
    COSTS_TITLE,
    busiest_sentence,
    costs_rows,
    plan_notes,
    plan_sentence,
)
from reports.terminal.rows import (
    STRAGGLERS_TITLE,
    cells,
    named,
    operation_names,
    records,
    represented,
    straggler_sentence,
    written,
)
from reports.terminal.what_a_step_is import bar, gradients_hidden
from scenarios.seam.trace import ALWAYS

_ROWS = 16
_STEPS_SHOWN = 12
_FORMULAS_SHOWN = 10
_STRAGGLERS_SHOWN = 3
_BANDWIDTHS_SHOWN = 8
_HINT = {"sim": "what would help: --what-if changes one thing at a time, and simulates each"}
# From here on NCCL's own formula is shown beside the link model.
DIFFERS = 0.05
# In words, and in one where room is short.
MEASURE_WORDS: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "ids_per_step": ("planner's ids per step", "ids", text.number),
    "perf_ms": ("planner's time", "time", lambda ms: text.duration(ms * 1e6)),
    "storage_bytes": ("storage", "storage", text.size),
}
# Up to here over the mean, loads are called even.
_EVEN = 1.001
PART_COLUMNS = ["part", "mean", "share", "max", "on rank", "max/mean"]
CLASS_COLUMNS = ["class", "links", "carried", "mean load", "hottest link", "while busy"]
CLASS_CELLS = ["link_class", "links", "bytes_carried", "mean_utilisation", "peak_utilisation", "busy_utilisation"]
BALANCE_COLUMNS = ["load (plan)", "max", "on rank", "mean", "max/mean"]
MEMORY_COLUMNS = ["part", "size", "of capacity", "there in"]
CAUSE_COLUMNS = ["table", "sharding", "load", "on that rank", "mean", "excess"]
# Where tables that load a rank are listed, so much of their names is to be seen, and of the ways they are sharded.
_NAMES_KEPT = [24, 14, 7]


def summarize(run: Run, step: int | None = None, spread: str = "") -> RenderableType:
    """Everything that a person asks first; the critical path is that of `step`.

    Without `step`, it is that of the median steady step. `spread` is a line on how steps vary from run to
    run. `text.as_text` makes it a string.

    Raises:
        ReportError: the run has no such step.
    """
    shown = step_shown(run, step)
    sections = [text.paragraph("\n".join(headline(run, spread)), style="bold"), *_what_it_is(run, shown)]
    kept = steady_kept(run)
    if shown is not None:
        sections += _dominant(run, shown)
    sections += [*_stragglers(run, kept), *changes.summarize(run), _steps(run)]
    if kept:
        sections += [_ranks(run, kept), _operations(run, kept), *_bandwidths(run, kept), *_formulas(run, kept)]
    elif len(run.steps):
        sections.append(text.paragraph("Operations: no spans of these steps were kept."))
    sections += [_waited_for(run, shown)] if shown is not None else []
    sections += [_links(run), *rank_classes.summarize(run), _imbalance(run), _memory(run), *_plan(run, shown)]
    sections.append(_metrics(run))
    return Group(*sections)


@text.json_ready
def as_json(run: Run) -> dict[str, Any]:
    """Return a run's frames, whole, as JSON-ready values: a list of rows each; stragglers with their sentences."""
    names = [
        "steps",
        "operations",
        "ranks",
        "waited_for",
        "link_classes",
        "links",
        "imbalance",
        "imbalance_causes",
        "plan_costs",
    ]
    names += ["unrecorded_steps", "formulas", "rank_memory", "memory", "metrics", "kernels"]
    steady, timed = steady_steps(run.steps), timed_steps(run)
    info = run.info
    head = {
        "name": info.name,
        "world": info.world,
        "digest": info.digest,
        "world_size": info.world_size,
        "seed": info.seed,
        "rests_on": rests_on(info),
        "kernels_priced_by": shares(run),
        "complete": info.complete,
        "host_counts": info.host_counts,
        "rank_classes": rank_classes.as_rows(run),
        "thinned": None if info.thinned is None else dataclasses.asdict(info.thinned),
        "error": info.error,
        "plan_notes": info.plan_notes,
        "on_cpu": info.on_cpu,
        "left_out": info.left_out,
        "advice": [dataclasses.asdict(one) for one in info.advice],
        "median_step_ns": timed["step_ns"].median(),
        "median_recorded_step_ns": steady["step_ns"].median(),
        "uncertainty": _uncertainty(run),
        "samples_per_s": timed["samples_per_s"].median(),
        **dataclasses.asdict(costs(run)),
        "cost": prices_of(run) or None,
        "median_of_steps": timed["step"].tolist(),
        "warm_up": run.warm_up,
    }
    found = [{**row, "sentence": straggler_sentence(row)} for row in records(run.stragglers)]
    step, late = typical_step(run), records(run.late_ranks_of(steady_kept(run)))
    held = [] if step is None else records(critical_path.dominant(run.critical_path_of(step)))
    of_tables = [] if step is None else records(run.table_costs_of(step))
    own = {"stragglers": found, "late_ranks": late, "dominant": held, "table_costs": of_tables}
    own |= _what_it_is_json(run, step)
    period = sync_period(run)
    more = {} if period is None else {"sync_period": dataclasses.asdict(period)}
    return {**head, **more, **{name: records(getattr(run, name)) for name in names}, **own}


def _uncertainty(run: Run) -> dict[str, Any] | None:
    known = uncertainty(run)
    return None if known is None else {"share": known.share, **dataclasses.asdict(known)}


def _what_it_is_json(run: Run, step: int | None) -> dict[str, Any]:
    done = utilisation_of(run)
    return {
        "by_what": [] if step is None else records(by_what(run.critical_path_of(step))),
        "gradients_hidden": gradients_hidden(run, steady_kept(run)) if step is not None else "",
        "arithmetic": None if done is None else done._asdict(),
        "what_if": records(changes.ranked(run)),
    }


def _what_it_is(run: Run, step: int | None) -> Iterator[RenderableType]:
    if step is not None:
        yield bar(run, step, only(run))
        said = [gradients_hidden(run, steady_kept(run)), changes.best(run) or _HINT.get(run.info.world, "")]
        if any(said):
            yield text.paragraph("\n".join(filter(None, said)))


def _steps(run: Run) -> RenderableType:
    steps = run.steps
    if not len(steps):
        return text.paragraph(f"Steps: no rank completed one{why_no_step(run)}.")
    by = ["step"] if len(steps) <= _STEPS_SHOWN else ["phase", "warm_up"]
    rows = [_step_row(group) for _, group in steps.groupby(by, sort=False)]
    columns = ["steps", "median", "min", "max", "samples/s", "operations"]
    if by == ["step"]:  # one step has no median of its own
        columns = ["step", "time", "fastest rank", "slowest rank", "samples/s", "operations"]
    notes = _phase_notes(steps, by)
    return text.table("Steps", columns, [[*row, note] for row, note in zip(rows, notes, strict=True)])


def _step_row(group: pd.DataFrame) -> list[str]:
    single = len(group) == 1
    low = group["fastest_rank_ns"].min() if single else group["step_ns"].min()
    high = group["slowest_rank_ns"].max() if single else group["step_ns"].max()
    rate = text.number(float(group["samples_per_s"].median()))
    times = [float(group["step_ns"].median()), float(low), float(high)]
    return [text.ranges(group["step"].tolist()), *map(text.duration, times), rate]


def _phase_notes(steps: pd.DataFrame, by: list[str]) -> Iterator[str]:
    previous = None
    for _, group in steps.groupby(by, sort=False):
        phase = int(group["phase"].iloc[0])
        changed = (
            "changed" if previous is not None and phase != previous else "same" if previous is not None else "first"
        )
        changed = "warm-up" if bool(group["warm_up"].any()) else changed
        yield changed if bool(group["complete"].all()) else "incomplete"
        previous = phase


def _waited_for(run: Run, step: int) -> RenderableType:
    own = run.waited_for_of(step)
    kept = own.sort_values("duration_ns", ascending=False, kind="stable").head(_ROWS).sort_values("order")
    rows = cells(named(kept), ["name", "kind", "duration_ns", "share"])
    rest = own.drop(kept.index)
    others = {f"({len(rest)} others)": rest} if len(rest) else {}
    for name, frame in {**others, "total": own}.items():
        rows.append([name, "", *(written(column, float(frame[column].sum())) for column in ("duration_ns", "share"))])
    title = f"Critical path of step {step}, in order{only(run)}"
    return text.table(title, ["operation", "kind", "time", "share"], rows, left=2)


def _dominant(run: Run, step: int) -> Iterator[RenderableType]:
    if said := dominant(run, step):
        lines = [f"{at}. {sentence}." for at, sentence in enumerate(said, 1)]
        yield Group(Text(f"{DOMINANT_TITLE}{only(run)}", style="bold"), text.paragraph("\n".join(lines)))


def _stragglers(run: Run, steps: list[int]) -> Iterator[RenderableType]:
    frame = run.stragglers_of(steps)
    if not len(frame):
        return
    more = f"; {len(frame) - _STRAGGLERS_SHOWN} more not shown" if len(frame) > _STRAGGLERS_SHOWN else ""
    title = f"{STRAGGLERS_TITLE}{only(run)}{more}"
    lines = [f"{at}. {straggler_sentence(row)}." for at, row in enumerate(records(frame.head(_STRAGGLERS_SHOWN)), 1)]
    yield Group(Text(title, style="bold"), text.paragraph("\n".join(lines)))


def _operations(run: Run, steps: list[int]) -> RenderableType:
    which = text.steps(steps) + only(run)
    frame = run.operations_of(steps).sort_values(["median_ns", "label", "kind"], ascending=[False, True, True])
    shown = frame.assign(name=operation_names(frame)).head(_ROWS)
    rows = cells(shown, ["name", "calls_per_step", "median_ns", "max_ns", "bytes_sent", "wait_share", "hidden_share"])
    rows = [
        row if part == "communication" else [*row[:-3], "", "", ""]
        for row, part in zip(rows, shown["part"], strict=True)
    ]
    columns = ["operation", "calls", "median", "max", "payload", "waiting", "hidden"]
    more = f"; {len(frame) - _ROWS} shorter ones not shown" if len(frame) > _ROWS else ""
    return text.table(f"Operations per rank and step, {which}{more}", columns, rows)


def _bandwidths(run: Run, steps: list[int]) -> Iterator[RenderableType]:
    frame = run.operations_of(steps)
    frame = frame[frame["busbw_bytes_per_s"].notna().to_numpy(bool)]
    if not len(frame):
        return
    frame = frame.sort_values("size_bytes", ascending=False, kind="stable")
    shown = frame.assign(name=operation_names(frame)).head(_BANDWIDTHS_SHOWN)
    rows = cells(shown, ["name", "members", "size_bytes", "moving_ns", "algbw_bytes_per_s", "busbw_bytes_per_s"])
    more = f"; {len(frame) - _BANDWIDTHS_SHOWN} smaller ones not shown" if len(frame) > _BANDWIDTHS_SHOWN else ""
    title = f"Bandwidth of a collective, since its last rank entered, {text.steps(steps)}{more}"
    yield text.table(title, ["operation", "ranks", "size", "transfer", "algbw", "busbw"], rows)


def _formulas(run: Run, steps: list[int]) -> Iterator[RenderableType]:
    which, frame = text.steps(steps) + only(run), run.formulas_of(steps)
    frame = frame[frame["difference"].abs() > DIFFERS]
    frame = frame.sort_values("difference", key=abs, ascending=False, kind="stable")
    if not len(frame):
        return
    shown = frame.assign(name=operation_names(frame), calls=frame["calls"].map("{:,}".format)).head(_FORMULAS_SHOWN)
    rows = cells(shown, ["name", "calls", "median_ns", "formula_ns", "difference"])
    columns = ["operation", "calls", "link model", "formula", "difference"]
    more = f"; {len(frame) - _FORMULAS_SHOWN} more not shown" if len(frame) > _FORMULAS_SHOWN else ""
    yield text.table(f"NCCL's own formula where it differs by over 5 %, {which}{more}", columns, rows)


def _ranks(run: Run, kept: list[int]) -> RenderableType:
    """Shares of the whole step: what a rank waits because others begin it earlier or end it later is a part, too."""
    parts = parts_of_step(run, kept)
    if not len(parts):
        return text.paragraph("Ranks: none completed a step.")
    title = f"Step breakdown over ranks, {text.steps(kept) + only(run)}"
    return text.table(title, PART_COLUMNS, part_rows(parts))


def part_rows(parts: pd.DataFrame) -> list[list[str]]:
    """The rows of `parts_of_step` under `PART_COLUMNS`; exposed communication is there as its two parts."""
    parts = parts[(parts["part"] != PARTS["exposed_ns"]).to_numpy(bool)]
    return cells(parts.assign(rank=represented(parts)), ["part", "mean_ns", "share", "max_ns", "rank", "max_over_mean"])


def _links(run: Run) -> RenderableType:
    if not len(run.links):
        world = "not available for real runs" if run.info.world == "real" else "none used"
        return text.paragraph(f"Links: {world}.")
    classes = cells(run.link_classes, CLASS_CELLS)
    hottest = run.links.head(5)
    hottest = hottest.assign(link=represented(hottest, "link"))
    columns = ["link", "direction", "class", "carried", "mean load", "busy", "while busy"]
    numbers = ["bytes_carried", "utilisation", "busy_share", "busy_utilisation"]
    rows = cells(hottest, ["link", "direction", "link_class", *numbers])
    return Group(
        text.table("Links: load, mean over the run, and of the hottest also while it is busy", CLASS_COLUMNS, classes),
        text.table("Hottest links", columns, rows, left=3),
    )


def _imbalance(run: Run) -> RenderableType:
    if not len(run.plan):
        return text.paragraph("Plan: no tables.")
    rows, causes = balance_rows(run, 3)
    parts = [text.table("Balance of tables", BALANCE_COLUMNS, rows)]
    if causes:
        parts.append(text.table("Tables that cause imbalance", CAUSE_COLUMNS, causes, left=3, kept=_NAMES_KEPT))
    return Group(*parts)


def _plan(run: Run, step: int | None) -> Iterator[RenderableType]:
    rows = [] if step is None else costs_rows(run, step, _ROWS)
    if step is not None and rows:
        more = len(run.table_costs_of(step)) - len(rows)
        title = f"{COSTS_TITLE}{only(run)}{f'; {more:,} that take less not shown' if more else ''}"
        yield text.table(title, COSTS_COLUMNS, rows, left=2, kept=[24, 17])
        yield text.paragraph("\n".join([COSTS_NOTE.format(step=step), f"{busiest_sentence(run, step)}."]))
    if said := [words for words in (plan_sentence(run), plan_notes(run)) if words and len(run.plan)]:
        yield text.paragraph("\n".join(said))


def balance_rows(run: Run, most_causes: int) -> tuple[list[list[str]], list[list[str]]]:
    """The plan's loads under `BALANCE_COLUMNS`, and under `CAUSE_COLUMNS` so many tables that make each uneven."""
    rows, causes = [], []
    for row in records(run.imbalance):
        title, word, form = MEASURE_WORDS[row["measure"]]
        numbers = [form(row["worst"]), str(row["worst_rank"]), form(row["mean"]), f"{row['max_over_mean']:.2f}"]
        rows.append([title, *numbers])
        own = run.imbalance_causes[(run.imbalance_causes["measure"] == row["measure"]).to_numpy(bool)]
        most = most_causes if row["max_over_mean"] > _EVEN else 0
        for cause in records(own[(own["excess"] > 0).to_numpy(bool)].head(most)):
            here, mean = form(cause["on_worst_rank"]), form(cause["mean"])
            causes.append([cause["table"], cause["sharding_type"], word, here, mean, f"+{form(cause['excess'])}"])
    return rows, causes


def _memory(run: Run) -> RenderableType:
    if not len(run.rank_memory):
        return text.paragraph("Memory: not recorded.")
    title, rows = memory_rows(run)
    return text.table(title, MEMORY_COLUMNS, rows)


def memory_rows(run: Run) -> tuple[str, list[list[str]]]:
    """The title and the rows of the fullest rank's memory by part, under `MEMORY_COLUMNS`: of what is there in all
    phases of a step, and what is there at the peak, which is the total.
    """
    fullest = run.rank_memory.head(1)
    own = run.memory[run.memory["rank"].isin(fullest["rank"]).to_numpy(bool)]
    own = own.sort_values("size_bytes", ascending=False, kind="stable")
    peak = fullest["phase"].iloc[0]
    total = fullest.rename(columns={"used_bytes": "size_bytes"}).assign(
        part="total" if peak == ALWAYS else f"total, at the peak in {peak}", phases=peak
    )
    parts, capacity = pd.concat([own, total]), float(fullest["capacity_bytes"].iloc[0])
    parts["share"] = parts["size_bytes"] / parts["capacity_bytes"].where(parts["capacity_bytes"] > 0)
    title = f"Memory of the fullest rank, {represented(fullest)[0]}, capacity {text.size(capacity)}"
    return title, cells(parts, ["part", "size_bytes", "share", "phases"])


def _metrics(run: Run) -> RenderableType:
    frame = run.metrics_by_step
    if not len(frame):
        return text.paragraph("Recorded metrics: none.")
    names = list(dict.fromkeys(frame["name"].tolist()))
    shown = names[:3]
    values = {(row["step"], row["name"]): row["mean"] for row in records(frame)}
    steps = sorted(set(frame["step"].tolist()))
    half = _STEPS_SHOWN // 2
    kept = steps if len(steps) <= _STEPS_SHOWN else [*steps[:half], *steps[-half:]]
    rows = [[str(step), *(_exact(values.get((step, name), float("nan"))) for name in shown)] for step in kept]
    if len(kept) < len(steps):
        rows.insert(half, ["...", *("" for _ in shown)])
    title = "Recorded metrics, mean over ranks"
    title += f"; {len(names) - len(shown)} more names left out" if len(names) > len(shown) else ""
    return text.table(title, ["step", *shown], rows)


def _exact(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.7g}"

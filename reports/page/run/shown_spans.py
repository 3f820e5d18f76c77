"""Choose the spans that a page's timeline shows: those of typical and of slow steps and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, KEYS, STEP
from reports.run import Run

# 35 bytes of the page each; a browser draws this many in some 50 ms.
MOST_SPANS = 30_000
MOST_LANES = 48
COLUMNS = [*KEYS, "step", "rank", "rank_count", "start_ns", "end_ns", "bytes_sent"]


@dataclass(frozen=True, slots=True)
class ShownSpans:
    """A choice of spans for the page, and their ranks and steps; `left_out` counts the other spans.

    Steps `in_part` have only the ranks that links lead to.
    """

    spans: pd.DataFrame
    steps: Sequence[int]
    ranks: Sequence[int]
    left_out: int
    in_part: Sequence[int] = ()


def choose(run: Run, typical: int | None, also: Sequence[tuple[int, int]] = ()) -> ShownSpans:
    """Choose the spans that a page shows: a typical step, the slowest and the first, then others while there is room.

    `also` are steps and ranks that links lead to; these come before all but the typical step. Where a step has too many
    ranks, the choice is those on its critical path, the slowest, the fastest and evenly spaced ones between.
    """
    asked = {step: [rank for other, rank in also if other == step] for step, _ in also}
    order = _steps_in_order(run, typical, list(asked))
    ranks = _ranks(run, order, [rank for _, rank in also])
    found: list[pd.DataFrame] = []
    in_part: list[int] = []
    room, waiting = MOST_SPANS, len(asked.keys() & order)
    for step, spans in _each_step(run, order, ranks):
        if found and step in asked and len(spans) > room // waiting:
            spans = spans[spans["rank"].isin(asked[step]).to_numpy(bool)]  # noqa: PLW2901
            in_part.append(step)
        elif found and len(spans) > room:
            break
        found.append(spans.iloc[:room])
        room -= len(found[-1])
        waiting -= step in asked
    spans = pd.concat(found, ignore_index=True) if found else run.spans.iloc[:0][COLUMNS]
    operations = run.span_count - len(run.outline.own)
    shown = sorted(set(spans["rank"].tolist()))
    return ShownSpans(spans, sorted(order[: len(found)]), shown, operations - len(spans), sorted(in_part))


def _each_step(run: Run, order: Sequence[int], ranks: Sequence[int]) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the spans of these ranks in each step; small steps are read many at a time, to save time."""
    begin, at_once = 0, 1
    while begin < len(order):
        steps = order[begin : begin + at_once]
        spans = _of_steps(run, steps)
        spans = spans[spans["rank"].isin(ranks).to_numpy(bool)]
        by_step = dict(iter(spans.groupby("step")))
        yield from ((step, by_step.get(step, spans.iloc[:0])) for step in steps)
        begin, at_once = begin + at_once, max(1, MOST_SPANS // max(len(spans) // len(steps), 1))


def _of_steps(run: Run, steps: Sequence[int]) -> pd.DataFrame:
    parts = [part.spans.loc[part.own, COLUMNS] for part in run.parts(COLUMNS, steps, beside=False)]
    spans = pd.concat(parts, ignore_index=True)
    return spans[(spans["kind"] != STEP).to_numpy(bool)].sort_values(["start_ns", "rank"], ignore_index=True)


def _steps_in_order(run: Run, typical: int | None, asked: Sequence[int]) -> list[int]:
    """Return the steps, most interesting first."""
    kept = run.kept_steps
    if not len(kept):
        return []
    by_time = kept.sort_values(["step_ns", "step"], ascending=[False, True])["step"].tolist()
    first = [] if typical is None else [typical]
    known = set(kept["step"].tolist())
    wanted = [*first, *(step for step in asked if step in known), by_time[0], kept["step"].iloc[0]]
    return list(dict.fromkeys(map(int, [*wanted, *kept["step"].tolist()])))


def _ranks(run: Run, order: Sequence[int], asked: Sequence[int]) -> list[int]:
    """Return as many ranks as there is room for, most interesting first."""
    if not order:
        return []
    spans, everybody = _of_steps(run, order[:1]), sorted(set(run.outline.own["rank"].tolist()))
    keys = ["rank", "stream", "is_compute"]
    lanes = spans.assign(is_compute=spans["kind"] == COMPUTE).drop_duplicates(keys).groupby("rank").size()
    every = lanes.index.tolist()
    if not every:
        return everybody
    room = MOST_SPANS // 2 if asked else MOST_SPANS  # the rest is for places that links lead to
    most = max(1, min(MOST_LANES // max(int(lanes.median()), 1), room * len(every) // max(len(spans), 1)))
    most = max(most, len(set(asked)))
    if len(everybody) <= most:
        return everybody
    own = run.outline.own
    own = own[(own["step"] == order[0]).to_numpy(bool) & own["rank"].isin(every).to_numpy(bool)]
    by_time = own.assign(took=own["end_ns"] - own["start_ns"]).sort_values(["took", "rank"])["rank"].tolist()
    path = run.critical_path_of(order[0])["rank"].drop_duplicates().tolist()
    between = [by_time[at] for at in np.linspace(0, len(by_time) - 1, most).round().astype(int)]
    wanted = [*asked, *by_time[-2:], by_time[0], *path[: most // 2], *between]
    known = set(every)
    return [rank for rank in dict.fromkeys(wanted) if rank in known][:most]

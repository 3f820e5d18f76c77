"""The steps of a run: when each began and ended, which ones are steady, and which ones only warm the run up.

A measured run's first steps allocate, compile, open connections and fill caches. Only this module decides which steps
are warm-up; frames mark these steps, and means leave them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS, Outline, ints, number_groups, texts
from reports.analysis.intervals import Ints
from reports.store.columns import frame_of_columns
from reports.store.parts import Bools
from scenarios.seam.steady_steps import steady_steps
from scenarios.seam.trace import Thinned

STEPS = {
    **dict.fromkeys(["step", "phase", "ranks", "start_ns", "end_ns", "step_ns"], "int"),
    **dict.fromkeys(["fastest_rank_ns", "slowest_rank_ns", "first_rank", "last_rank"], "int"),
    "samples_per_s": "float",
    **dict.fromkeys(["complete", "steady", "warm_up"], "bool"),
}
# The fewest steps that show a run's settled time, and the least excess over it of a warm-up step.
SETTLED, LEAST_EXCESS = 2, 0.1


def leading(step_ns: Sequence[int]) -> int:
    """Return how many first steps are warm-up: they take longer than the time on which the others settle.

    The later half of the steps is the settled part: the limit is the range from its 10th to its 90th percentile, and as
    much again above it (more if the half is only a few steps, which do not show their range). A step of the warm-up
    lies above that limit, and at least 10 % above the median; the first step that does not ends the warm-up.
    """
    times = np.asarray(step_ns, float)
    settled = times[len(times) - max(SETTLED, len(times) // 2) :]
    if len(times) <= SETTLED:
        return 0
    low, median, high = np.quantile(settled, [0.1, 0.5, 0.9])
    limit = max(high + (1 + 4 / len(settled)) * (high - low), (1 + LEAST_EXCESS) * median)
    above = times[: len(times) - len(settled)] > limit
    return len(above) if above.all() else int(above.argmin())


def steps(
    whole: Outline,
    world_size: int,
    batch_size: int | None = None,
    thinned: Thinned | None = None,
    *,
    sync_every: int = 0,
    may_warm_up: bool = False,
) -> pd.DataFrame:
    """Return one row per step: from the start of its first rank to the end of its last.

    `phase` counts from 0 and grows where a step uses other operations than the step before it (vanilla steps before
    compressed ones). `complete`: every rank ended it. `steady`: complete, or any step where none is complete, and one
    of `scenarios.seam.steady_steps.steady_steps`; averaging steps only if there are no others. `warm_up`: one of the
    first of these, which take longer than the others if the run may warm up; such a step is not steady.

    Args:
        whole: the outline of the run's spans.
        world_size: the number of ranks.
        batch_size: samples per rank; without it `samples_per_s` is nan.
        thinned: what a run recorded about spans that it left out.
        sync_every: every how many steps replicas of tables are averaged.
        may_warm_up: whether the run is real, or of a script, whose own code fills torch's caches when it is predicted.
    """
    columns = _times(whole.own, world_size, batch_size)
    numbers, took, complete = (np.asarray(columns[name]) for name in ("step", "step_ns", "complete"))
    counted = _may_be_steady(complete, numbers, sync_every)
    phase, steady = _regimes(whole, numbers, counted, thinned)
    alike = np.flatnonzero(counted)[steady]
    settled = leading(took[alike].tolist()) if may_warm_up else 0
    more = {
        "phase": phase,
        "steady": np.isin(numbers, numbers[alike[settled:]]),
        "warm_up": np.isin(numbers, numbers[alike[:settled]]),
    }
    return frame_of_columns({**columns, **more}, STEPS)


def unrecorded_steps(whole: Outline, world_size: int, batch_size: int | None = None) -> pd.DataFrame:
    """Return one row per step, as `steps`, of steps that a measured run timed with the recording off.

    Such steps are in one phase, because their calls are unknown; `steady` are complete steps after a warm-up.
    """
    columns = _times(whole.unrecorded, world_size, batch_size)
    took, complete = (np.asarray(columns[name]) for name in ("step_ns", "complete"))
    settled = leading(took[complete].tolist())
    is_early = complete & (np.cumsum(complete) <= settled)
    more = {"phase": np.zeros(len(took)), "steady": complete & ~is_early, "warm_up": is_early}
    return frame_of_columns({**columns, **more}, STEPS)


def _times(own: pd.DataFrame, world_size: int, batch_size: int | None) -> dict[str, Any]:
    """Return the columns of `steps` that follow from the steps' own spans."""
    steps, starts, ends, ranks = (ints(own, name) for name in ("step", "start_ns", "end_ns", "rank"))
    known, numbers = np.unique(steps, return_inverse=True)
    # The rows of each step that begin first, and that end last; the lowest rank in ties.
    bounds = np.searchsorted(np.sort(numbers), np.arange(len(known)))
    first = np.lexsort((ranks, starts, numbers))[bounds]
    last = np.lexsort((ranks, -ends, numbers))[bounds]
    by_time = np.lexsort((ends - starts, numbers))
    present = np.bincount(numbers, ints(own, "rank_count"), len(known)).astype(np.int64)
    took = ends[last] - starts[first]
    samples = np.nan if batch_size is None else float(batch_size) * world_size * 1e9
    return {
        "step": known,
        "ranks": present,
        "start_ns": starts[first],
        "end_ns": ends[last],
        "step_ns": took,
        "fastest_rank_ns": (ends - starts)[by_time[bounds]],
        "slowest_rank_ns": (ends - starts)[by_time[np.append(bounds[1:], len(steps))[: len(known)] - 1]],
        "first_rank": ranks[first],
        "last_rank": ranks[last],
        "samples_per_s": np.divide(samples, took, out=np.full(len(took), np.nan), where=took > 0),
        "complete": present >= world_size,
    }


def _may_be_steady(complete: Bools, numbers: Ints, sync_every: int) -> Bools:
    """Return which steps may be steady: complete steps that do not average replicas, as far as such steps exist."""
    counted = complete if complete.any() else ~complete
    usual = counted & ((numbers + 1) % max(sync_every, 1) != 0)
    return usual if usual.any() else counted


def _regimes(whole: Outline, numbers: Ints, counted: Bools, thinned: Thinned | None) -> tuple[Ints, Bools]:
    """Return the phase of each step, and which of the `counted` steps are steady."""
    if thinned is None:
        calls, names = _calls(whole.used, numbers)
        return _phases(calls), _steady(calls[counted], names)
    phase = np.searchsorted(thinned.phases, numbers, side="right")
    is_last = phase[counted] == phase[counted].max(initial=0)
    return phase, is_last if thinned.steady is None else _in_turn(thinned.steady, numbers[counted], is_last)


def _calls(used: pd.DataFrame, numbers: Ints) -> tuple[Ints, list[tuple[str, str, str]]]:
    """Return how many times a rank called each operation in each step, [steps, operations], and the operations."""
    columns = [texts(used, key) for key in KEYS]
    groups, firsts = number_groups(*columns)
    calls = np.zeros((len(numbers), len(firsts)), np.int64)
    at = np.searchsorted(numbers, ints(used, "step"))
    known = at < len(numbers)
    known[known] = numbers[at[known]] == ints(used, "step")[known]
    calls[at[known], groups[known]] = ints(used, "calls")[known]
    return calls, list(zip(*(column[firsts] for column in columns), strict=True))


def _phases(calls: Ints) -> Ints:
    present = calls > 0
    changed = np.any(present[1:] != present[:-1], axis=1)
    return np.concatenate([np.zeros(min(1, len(calls)), np.int64), np.cumsum(changed)])


def _steady(calls: Ints, names: list[tuple[str, str, str]]) -> Bools:
    if not len(names):
        return np.ones(len(calls), bool)
    unlike, work_of = np.unique(calls, axis=0, return_inverse=True)
    works = [frozenset((names[at], int(work[at])) for at in np.flatnonzero(work)) for work in unlike]
    return np.array(steady_steps(works, work_of.ravel().tolist()), bool)


def _in_turn(turns: Sequence[int], numbers: Ints, otherwise: Bools) -> Bools:
    steady = np.searchsorted(turns, numbers, side="right") % 2 == 1
    return steady if steady.any() else otherwise

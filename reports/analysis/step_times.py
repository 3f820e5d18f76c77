"""The steps of a run: when each began and ended, which are what the run has become, and which only warm it up.

A measured run's first steps allocate, compile, open connections and fill caches. This is the one place that decides
which these are; frames mark them, and whatever takes means leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import KEYS, Outline, ints, numbered
from reports.analysis.intervals import Ints
from reports.store.columns import fixed
from reports.store.parts import Bools
from scenarios.seam.steady_steps import steady_steps
from scenarios.seam.trace import Thinned

STEPS = {
    **dict.fromkeys(["step", "phase", "ranks", "start_ns", "end_ns", "step_ns"], "int"),
    **dict.fromkeys(["fastest_rank_ns", "slowest_rank_ns", "first_rank", "last_rank"], "int"),
    "samples_per_s": "float",
    **dict.fromkeys(["complete", "steady", "warm_up"], "bool"),
}
# Steps from which it can be told what a run settles on, and how far above that one must be at the least.
SETTLED, LEAST_EXCESS = 2, 0.1


def leading(step_ns: Sequence[int]) -> int:
    """Return how many first steps, of steps in order that do the same, take longer than what the others settle on.

    The later half of the steps is what the run settles on: the range from its 10th to its 90th percentile, and as much
    again above it (more if the half is only a few steps, which do not show their range). A step of the warm-up lies
    above that, and at least 10 % above the median; the first step that does not ends the warm-up.
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
    measured: bool = False,
) -> pd.DataFrame:
    """Return one row a step: from the start of its first rank to the end of its last.

    `phase` counts from 0 and grows where a step uses other operations than the step before it (vanilla steps before
    compressed ones); `batch_size` is one rank's; without it `samples_per_s` is nan. `complete`: every rank ended it.
    `steady`: complete, or any where none is, and one of the `steady_steps` of `scenarios.seam.steady_steps`;
    each `sync_every`-th, which averages replicas of tables besides, only if there are no others. `warm_up`: one of the
    first of these, which take longer than the others in a run that was `measured`; it is not steady. What the spans do
    not show `thinned` knows.
    """
    columns = _times(whole.own, world_size, batch_size)
    numbers, took, complete = (np.asarray(columns[name]) for name in ("step", "step_ns", "complete"))
    counted = _counted(complete, numbers, sync_every)
    phase, steady = _regimes(whole, numbers, counted, thinned)
    alike = np.flatnonzero(counted)[steady]
    settled = leading(took[alike].tolist()) if measured else 0
    more = {
        "phase": phase,
        "steady": np.isin(numbers, numbers[alike[settled:]]),
        "warm_up": np.isin(numbers, numbers[alike[:settled]]),
    }
    return fixed({**columns, **more}, STEPS)


def unrecorded_steps(whole: Outline, world_size: int, batch_size: int | None = None) -> pd.DataFrame:
    """Return one row a step, as `steps`, of those that a measured run has timed with the recording off.

    All are of one phase, as their calls are not known; `steady` are the complete ones behind a warm-up.
    """
    columns = _times(whole.unrecorded, world_size, batch_size)
    took, complete = (np.asarray(columns[name]) for name in ("step_ns", "complete"))
    settled = leading(took[complete].tolist())
    is_early = complete & (np.cumsum(complete) <= settled)
    more = {"phase": np.zeros(len(took)), "steady": complete & ~is_early, "warm_up": is_early}
    return fixed({**columns, **more}, STEPS)


def _times(own: pd.DataFrame, world_size: int, batch_size: int | None) -> dict[str, Any]:
    """Return the columns of `steps` that follow from the steps' own spans."""
    own = own.assign(rank_ns=own["end_ns"] - own["start_ns"])
    by_step = own.groupby("step", sort=True)
    start, end = by_step["start_ns"].min(), by_step["end_ns"].max()
    firsts = own.sort_values(["step", "start_ns", "rank"]).drop_duplicates("step")
    lasts = own.sort_values(["step", "end_ns", "rank"], ascending=[True, False, True]).drop_duplicates("step")
    took, ranks = (end - start).to_numpy(), by_step["rank_count"].sum().to_numpy()
    samples = np.nan if batch_size is None else float(batch_size) * world_size * 1e9
    return {
        "step": start.index.to_numpy(),
        "ranks": ranks,
        "start_ns": start,
        "end_ns": end,
        "step_ns": took,
        "fastest_rank_ns": by_step["rank_ns"].min(),
        "slowest_rank_ns": by_step["rank_ns"].max(),
        "first_rank": firsts["rank"],
        "last_rank": lasts["rank"],
        "samples_per_s": np.divide(samples, took, out=np.full(len(took), np.nan), where=took > 0),
        "complete": ranks >= world_size,
    }


def _counted(complete: Bools, numbers: Ints, sync_every: int) -> Bools:
    """Return which steps may be steady: complete ones and not those that average replicas, as far as there are such."""
    counted = complete if complete.any() else ~complete
    usual = counted & ((numbers + 1) % max(sync_every, 1) != 0)
    return usual if usual.any() else counted


def _regimes(whole: Outline, numbers: Ints, counted: Bools, thinned: Thinned | None) -> tuple[Ints, Bools]:
    """Return the phase of each step, and which of those that are `counted` are steady."""
    if thinned is None:
        calls, names = _calls(whole.used, numbers)
        return _phases(calls), _steady(calls[counted], names)
    phase = np.searchsorted(thinned.phases, numbers, side="right")
    is_last = phase[counted] == phase[counted].max(initial=0)
    return phase, is_last if thinned.steady is None else _in_turn(thinned.steady, numbers[counted], is_last)


def _calls(used: pd.DataFrame, numbers: Ints) -> tuple[Ints, list[tuple[str, str, str]]]:
    """How often a rank called each operation in each step, [steps, operations], and the operations."""
    groups, names = numbered(used, KEYS)
    calls = np.zeros((len(numbers), len(names)), np.int64)
    at = np.searchsorted(numbers, ints(used, "step"))
    known = at < len(numbers)
    known[known] = numbers[at[known]] == ints(used, "step")[known]
    calls[at[known], groups[known]] = ints(used, "calls")[known]
    return calls, list(names.itertuples(index=False, name=None))


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

"""Find the ranks that others wait for, and for how long, from spans alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from reports.analysis.frames import RANK_COLUMNS, STEP, Overlaps, ints, is_collective, number_groups, texts
from reports.analysis.intervals import Ints
from reports.store.columns import frame_of_columns
from reports.store.parts import Part

# Columns of the spans that `late_ranks` reads.
COLUMNS = RANK_COLUMNS
LATE_RANKS = {**dict.fromkeys(["rank", "rank_count"], "int"), **dict.fromkeys(["wait_ns", "share"], "float")}


def late_ranks(parts: Iterable[Part]) -> pd.DataFrame:
    """Return one row per rank that entered a collective last while others were blocked, longest wait first.

    `wait_ns` is the mean time that a rank waits for it in a step; `share` is of all straggler wait. A representative
    counts for `rank_count` ranks.
    """
    waited, rank_steps = [pd.DataFrame({"rank": [], "rank_count": [], "wait_ns": []})], 0
    for part in parts:
        spans, overlaps = part.spans, Overlaps.of(part.spans)
        in_steps = (ints(spans, "step") >= 0) & part.own
        rank_steps += int(spans.loc[in_steps & (texts(spans, "kind") == STEP), "rank_count"].sum())
        waits = np.flatnonzero((overlaps.wait_ns > 0) & in_steps)
        late = spans[["rank", "rank_count"]].iloc[overlaps.last_member[waits]].reset_index(drop=True)
        waited.append(late.assign(wait_ns=overlaps.wait_ns[waits] * ints(spans, "rank_count")[waits]))
    summed = pd.concat(waited).groupby(["rank", "rank_count"], sort=True)["wait_ns"].sum().reset_index()
    total = summed["wait_ns"].sum()
    found = summed.assign(wait_ns=summed["wait_ns"] / max(rank_steps, 1), share=summed["wait_ns"] / max(total, 1))
    return frame_of_columns(found.sort_values("wait_ns", ascending=False, kind="stable"), LATE_RANKS)


def standing_still(spans: pd.DataFrame, overlaps: Overlaps) -> tuple[dict[int, int], dict[int, int]]:
    """Return how long (ns) at least half of the ranks wait for the last one, by collective and by step.

    The first dict is by the row of a collective's last member, up to its entry, as `Overlaps` counts waiting; the
    second by step: ranks that have ended it wait until its end. A representative counts for all ranks that it
    represents.
    """
    weights = ints(spans, "rank_count")
    members = np.flatnonzero(is_collective(spans) & overlaps.communicates)
    entered = _of_half(overlaps.last_member[members], overlaps.wait_ns[members], weights[members])
    own = np.flatnonzero(texts(spans, "kind") == STEP)
    steps, ends = ints(spans, "step")[own], ints(spans, "end_ns")[own]
    numbers, firsts = number_groups(steps)
    last_ns = np.zeros(len(firsts), np.int64)
    np.maximum.at(last_ns, numbers, ends)
    return entered, _of_half(steps, last_ns[numbers] - ends, weights[own])


def _of_half(groups: Ints, waits: Ints, weights: Ints) -> dict[int, int]:
    """Return for each group the longest time for which at least half of its members, by weight, wait."""
    order = np.lexsort([-waits, groups])
    groups, waits, weights = groups[order], waits[order], weights[order]
    known, firsts, numbers = np.unique(groups, return_index=True, return_inverse=True)
    so_far = np.cumsum(weights)
    so_far -= (so_far - weights)[firsts][numbers]
    half = np.flatnonzero(2 * so_far >= np.bincount(numbers, weights)[numbers])
    longest = waits[half[np.unique(numbers[half], return_index=True)[1]]]
    return dict(zip(known.tolist(), longest.tolist(), strict=True))

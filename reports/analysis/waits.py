"""Finds for which ranks the others wait, from spans alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from reports.analysis.frames import RANK_COLUMNS, STEP, Overlaps, ints
from reports.store.columns import fixed
from reports.store.parts import Part

# Columns of the spans that `late_ranks` reads.
COLUMNS = RANK_COLUMNS
LATE_RANKS = {**dict.fromkeys(["rank", "rank_count"], "int"), **dict.fromkeys(["wait_ns", "share"], "float")}


def late_ranks(parts: Iterable[Part]) -> pd.DataFrame:
    """One row for each rank that entered a collective last while others stood still, those waited for most first.

    `wait_ns` is what a rank waits for it in a step, in the mean; `share` is of all that is waited for. A representative
    stands for `rank_count` ranks.
    """
    waited, rank_steps = [pd.DataFrame({"rank": [], "rank_count": [], "wait_ns": []})], 0
    for part in parts:
        spans, overlaps = part.spans, Overlaps.of(part.spans)
        in_steps = (ints(spans, "step") >= 0) & part.own
        rank_steps += int(spans.loc[in_steps & (spans["kind"] == STEP).to_numpy(bool), "rank_count"].sum())
        waits = np.flatnonzero((overlaps.wait_ns > 0) & in_steps)
        late = spans[["rank", "rank_count"]].iloc[overlaps.last_member[waits]].reset_index(drop=True)
        waited.append(late.assign(wait_ns=overlaps.wait_ns[waits] * ints(spans, "rank_count")[waits]))
    summed = pd.concat(waited).groupby(["rank", "rank_count"], sort=True)["wait_ns"].sum().reset_index()
    total = summed["wait_ns"].sum()
    found = summed.assign(wait_ns=summed["wait_ns"] / max(rank_steps, 1), share=summed["wait_ns"] / max(total, 1))
    return fixed({**found.sort_values("wait_ns", ascending=False, kind="stable", ignore_index=True)}, LATE_RANKS)

"""Quantiles of weighted values in groups; arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.analysis.intervals import Floats, Ints


def weighted_quantiles(
    groups: Ints, values: Floats, weights: Ints, count: int, shares: Sequence[float]
) -> list[Floats]:
    """For each of `shares` the quantile of `values` in each group 0..count-1, each value counted `weights` times.

    It lies linearly between neighbours, as numpy's does; nan for an empty group. Weights are at least 1.
    """
    totals = np.bincount(groups, weights, count).astype(np.int64)
    order = np.lexsort((values, groups))
    values, reached = values[order], np.cumsum(weights[order])  # over all groups, one after the other
    first, filled = np.cumsum(totals) - totals, totals > 0
    found = []
    for share in shares:
        place = share * (totals[filled] - 1)
        below = np.floor(place).astype(np.int64)
        above = np.ceil(place).astype(np.int64)
        low, high = (values[np.searchsorted(reached, first[filled] + at, side="right")] for at in (below, above))
        quantile = np.full(count, np.nan)
        quantile[filled] = low + (high - low) * (place - below)
        found.append(quantile)
    return found

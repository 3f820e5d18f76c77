"""Statistics of a sample of times: its median, the median's confidence interval, and percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reports.analysis.intervals import Floats, Ints

# The probability that the median's interval misses the median.
_MISSES = Fraction(1, 20)
# Not even the least and the greatest of fewer values enclose the median in 95 % of samples: 2 * 0.5 ** 5 > 0.05.
LEAST_COUNT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample's median with its 95 % confidence interval (nan below `LEAST_COUNT`), 10th and 90th percentile."""

    count: int
    median: float
    median_low: float
    median_high: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The 90th minus the 10th percentile, as a share of the median."""
        return _share(self.high - self.low, self.median)

    @property
    def uncertainty(self) -> float:
        """Half of the median's interval, as a share of the median; nan where there is no interval."""
        return _share((self.median_high - self.median_low) / 2, self.median)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """A summary of signed errors; nan without any. `p95` is the 95th percentile of sizes, `worst` keeps its sign."""

    signed_median: float
    median: float
    p95: float
    worst: float


def sample(values: Sequence[float]) -> Sample:
    """Summarize at least one value, none below 0; percentiles are interpolated linearly."""
    ordered = np.sort(np.asarray(values, float))
    assert len(ordered), "a sample has values"
    assert ordered[0] >= 0, "times are not below 0"
    low, median, high = (float(value) for value in np.quantile(ordered, [0.1, 0.5, 0.9]))
    place = median_place(len(ordered))
    median_low, median_high = (math.nan, math.nan) if place is None else (ordered[place - 1], ordered[-place])
    return Sample(
        count=len(ordered),
        median=median,
        median_low=float(median_low),
        median_high=float(median_high),
        low=low,
        high=high,
    )


def median_place(count: int) -> int | None:
    """Return k such that the k-th least and greatest of `count` values enclose the median in 95 % of samples.

    The interval holds for every distribution, because the number of values below the median is distributed as heads of
    a fair coin. The largest such k gives the narrowest interval; None where there is none.
    """
    tail, place = 0, 0
    while 2 * (tail + math.comb(count, place)) <= _MISSES * 2**count:
        tail += math.comb(count, place)
        place += 1
    return place or None


def disagreement(medians: Sequence[float]) -> float:
    """Return half the range as a share of the median; 0 for one value."""
    return _share((max(medians) - min(medians)) / 2, float(np.median(medians)))


def errors(signed: Sequence[float]) -> Errors:
    """Return statistics of signed errors."""
    if not len(signed):
        return Errors(signed_median=math.nan, median=math.nan, p95=math.nan, worst=math.nan)
    sizes = np.abs(np.asarray(signed, float))
    return Errors(
        signed_median=float(np.median(signed)),
        median=float(np.median(sizes)),
        p95=float(np.quantile(sizes, 0.95)),
        worst=float(signed[int(sizes.argmax())]),
    )


def weighted_quantiles(
    groups: Ints, values: Floats, weights: Ints, *, count: int, shares: Sequence[float]
) -> list[Floats]:
    """Return for each of `shares` the quantile of `values` in every group, [count].

    Quantiles are interpolated linearly, as numpy's; nan for an empty group.

    Args:
        groups: the group of each value, in 0..count-1.
        values: the values.
        weights: how many times each value counts, at least 1.
        count: the number of groups.
        shares: quantiles in 0..1.
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


def weighted_lower_median(groups: Ints, values: Floats, weights: Ints | Floats, count: int) -> Floats:
    """Return the median of `values` in each group, [count]: the lower of the two middle values of an even number.

    Each value counts `weights` times, which may be 0; nan for an empty group. Groups are 0..count-1.
    """
    order = np.lexsort((values, groups))
    groups, values, weights = groups[order], values[order], weights[order]
    totals = np.bincount(groups, weights, count)
    below = np.concatenate([[0.0], np.cumsum(totals)[:-1]]) if count else totals
    rows = np.flatnonzero(2 * (np.cumsum(weights) - below[groups]) >= totals[groups])
    median = np.full(count, np.nan)
    median[groups[rows][::-1]] = values[rows[::-1]]  # the last assignment wins: the first such row of each group
    median[totals == 0] = np.nan
    return median


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan

"""Arithmetic on half-open intervals of integer ns, vectorised over all ranks at once; it knows nothing of spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Union:
    """Disjoint intervals in ascending order; `before[i]` is the length (ns) of all intervals left of interval i."""

    starts: Ints
    ends: Ints
    before: Ints

    def covered_ns(self, starts: Ints, ends: Ints) -> Ints:
        """Return the length (ns) of each interval [start, end) that lies in the union."""
        return self._length_up_to(ends) - self._length_up_to(starts)

    def join(self, other: Union) -> Union:
        """Return the union of both unions."""
        return union(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def _length_up_to(self, moments: Ints) -> Ints:
        if not len(self.starts):
            return np.zeros(len(moments), np.int64)
        at = np.searchsorted(self.starts, moments, side="right") - 1
        safe = np.maximum(at, 0)
        inside = np.minimum(moments, self.ends[safe]) - self.starts[safe]
        return np.where(at < 0, 0, self.before[safe] + inside).astype(np.int64)


def union(starts: Ints, ends: Ints) -> Union:
    """Return the union of intervals given in any order; empty intervals are ignored."""
    kept = ends > starts
    order = np.argsort(starts[kept], kind="stable")
    # The running maximum: an interval may end before an earlier one that contains it.
    starts, reach = starts[kept][order], np.maximum.accumulate(ends[kept][order])
    opens = np.ones(len(starts), bool)
    # Strictly later: intervals that touch become one.
    opens[1:] = starts[1:] > reach[:-1]
    firsts = np.flatnonzero(opens)
    lasts = np.append(firsts[1:], len(starts))[: len(firsts)] - 1
    begins, finishes = starts[firsts], reach[lasts]
    lengths = finishes - begins
    return Union(begins, finishes, np.cumsum(lengths) - lengths)


@dataclass(frozen=True, slots=True)
class RankAxis:
    """An axis on which every rank has a stretch of its own, so that intervals of two ranks never touch."""

    ranks: Ints
    origin: int
    width: int

    @classmethod
    def of(cls, ranks: Ints, starts: Ints, ends: Ints) -> RankAxis:
        """Return the axis that holds these intervals of these ranks."""
        known = np.unique(ranks)
        origin = int(starts.min()) if len(starts) else 0
        # One ns more than the run, so that the stretches of two ranks do not touch.
        width = (int(ends.max()) if len(ends) else 0) - origin + 1
        assert len(known) * width < 2**63, "the run is too long for int64 ns on every rank"
        return cls(known, origin, width)

    def place(self, ranks: Ints, moments: Ints) -> Ints:
        """Return the positions of the ranks' moments on this axis."""
        return np.searchsorted(self.ranks, ranks) * np.int64(self.width) + (moments - self.origin)

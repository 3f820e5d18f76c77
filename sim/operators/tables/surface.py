"""Interpolates values that are known at points of a grid with gaps, linearly in the logarithms of the coordinates."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

# Beyond the outermost known coordinate a value halves with each octave.
_PER_OCTAVE = 0.5


class Surface:
    """A function of points with whole coordinates of at least 1; towards 0 far away from all known points.

    The first coordinates pick lines, along the last of which most points lie: a line is interpolated by itself, and a
    point between lines from those around it.
    """

    __slots__ = ("_children", "_keys")

    def __init__(self, points: Iterable[tuple[Sequence[int], float]]) -> None:
        """Build the surface of `points` (coordinates, value), sorted by their coordinates, none of them twice."""
        self._keys: list[float] = []
        self._children: list[Surface | float] = []
        for first, group in groupby(points, key=lambda point: point[0][0]):
            rest = [(coordinates[1:], value) for coordinates, value in group]
            self._keys.append(math.log2(first))
            self._children.append(Surface(rest) if rest[0][0] else rest[0][1])

    def at(self, point: Sequence[float]) -> float:
        """Return the value at the logarithms (to base 2) of the coordinates."""
        keys, where = self._keys, point[0]
        place = bisect_left(keys, where)
        if place == len(keys):
            return self._child(place - 1, point) * math.pow(_PER_OCTAVE, where - keys[-1])
        above = keys[place]
        if above == where:
            return self._child(place, point)
        if not place:
            return self._child(0, point) * math.pow(_PER_OCTAVE, above - where)
        share = (where - keys[place - 1]) / (above - keys[place - 1])
        return (1 - share) * self._child(place - 1, point) + share * self._child(place, point)

    def _child(self, place: int, point: Sequence[float]) -> float:
        child = self._children[place]
        return child.at(point[1:]) if isinstance(child, Surface) else child


def surfaces(points: Iterable[tuple[str, Sequence[int], float]]) -> dict[str, Surface]:
    """Return a surface for each name in `points` (name, coordinates, value); of equal points the last one counts."""
    unique = {(name, tuple(coordinates)): value for name, coordinates, value in points}
    ordered = sorted(unique.items(), key=itemgetter(0))
    return {
        name: Surface([(key[1], value) for key, value in group])
        for name, group in groupby(ordered, key=lambda item: item[0][0])
    }

"""Interpolates values that are known at points of a grid with gaps, linearly in the logarithms of the coordinates."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Beyond the outermost known coordinate a value halves with each octave.
_PER_OCTAVE = 0.5


@dataclass(frozen=True, slots=True)
class Surface:
    """A function of points with coordinates of at least 1; towards 0 far away from all known points.

    The first coordinates pick lines, along the last of which most points lie: a line is interpolated by itself, and a
    point between lines from those around it. `keys` are logarithms (to base 2) of the first coordinate, `children` what
    there is at each: surfaces of the other coordinates, or values.
    """

    keys: list[float]
    children: Sequence[Surface | float]

    def at(self, point: Sequence[float]) -> float:
        """Return the value at the logarithms (to base 2) of the coordinates."""
        keys, where = self.keys, point[0]
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
        child = self.children[place]
        return child.at(point[1:]) if isinstance(child, Surface) else child


def surface(coordinates: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> Surface:
    """Return the surface through `values` [points] at `coordinates` [points, axes]; of equal points the last counts."""
    order = np.lexsort(coordinates.T[::-1])
    coordinates, values = coordinates[order], values[order]
    differs = coordinates[1:] != coordinates[:-1]
    last = np.append(differs.any(axis=1), True)
    coordinates, values = coordinates[last], values[last]
    differs = np.logical_or.accumulate(coordinates[1:] != coordinates[:-1], axis=1)
    logs = [column.tolist() for column in np.log2(coordinates).T]
    starts = [[0, *(np.flatnonzero(column) + 1).tolist()] for column in differs.T]
    return _built(logs, values.tolist(), starts, range(len(values)))


def _built(logs: list[list[float]], values: list[float], starts: list[list[int]], points: range) -> Surface:
    """Return the surface of some of the sorted points; `starts`: of each axis, where it or one before it changes."""
    if len(logs) == 1:
        return Surface(logs[0][points.start : points.stop], values[points.start : points.stop])
    first, past = bisect_left(starts[0], points.start), bisect_left(starts[0], points.stop)
    mine = starts[0][first:past]
    stops = [*mine[1:], points.stop]
    children = [_built(logs[1:], values, starts[1:], range(*ends)) for ends in zip(mine, stops, strict=True)]
    return Surface([logs[0][start] for start in mine], children)

"""Interpolates values on a grid with gaps, linearly in the logarithms of the coordinates."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

# Beyond the outermost known coordinate a value halves with each octave.
_PER_OCTAVE = 0.5


class Values(Protocol):
    """A sequence of values by place; a value may be computed at first use."""

    def __getitem__(self, place: int, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Surface:
    """A function of points with coordinates of at least 1; it tends to 0 far away from all known points.

    The first coordinates select lines, along the last of which most points lie: a line is interpolated by itself, and a
    point between lines from those around it. `keys` are logarithms (to base 2) of the first coordinate; `children` are
    the surfaces of the other coordinates at each key, or places in `values`.
    """

    keys: list[float]
    children: Sequence[Surface | int]
    values: Values

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

    def leave_one_out(self) -> Iterator[tuple[float, float]]:
        """Yield each point's value, and its interpolation from the other points of its line, 0 if there are none."""
        for place, child in enumerate(self.children):
            if isinstance(child, Surface):
                yield from child.leave_one_out()
                continue
            others = [other for other in range(len(self.keys)) if other != place]
            line = Surface(
                [self.keys[other] for other in others], [self.children[other] for other in others], self.values
            )
            yield self.values[child], line.at([self.keys[place]]) if others else 0.0

    def _child(self, place: int, point: Sequence[float]) -> float:
        child = self.children[place]
        return child.at(point[1:]) if isinstance(child, Surface) else self.values[child]


def surface(coordinates: npt.NDArray[np.int64], values: Values) -> Surface:
    """Return the surface through `values` [points] at `coordinates` [points, axes]; of equal points the last counts."""
    order = np.lexsort(coordinates.T[::-1])
    coordinates = coordinates[order]
    differs = coordinates[1:] != coordinates[:-1]
    last = np.append(differs.any(axis=1), True)
    coordinates, places = coordinates[last], order[last].tolist()
    differs = np.logical_or.accumulate(coordinates[1:] != coordinates[:-1], axis=1)
    logs = [column.tolist() for column in np.log2(coordinates).T]
    starts = [[0, *(np.flatnonzero(column) + 1).tolist()] for column in differs.T]

    def build(axis: int, points: range) -> Surface:
        """Return the surface of some of the sorted points by the coordinates from `axis` on."""
        if axis == len(logs) - 1:
            return Surface(logs[axis][points.start : points.stop], places[points.start : points.stop], values)
        first, past = bisect_left(starts[axis], points.start), bisect_left(starts[axis], points.stop)
        mine = starts[axis][first:past]
        children = [build(axis + 1, range(*ends)) for ends in zip(mine, [*mine[1:], points.stop], strict=True)]
        return Surface([logs[axis][start] for start in mine], children, values)

    return build(0, range(len(places)))

"""Corrects laws by the measured operators that are nearest in shape, for any family of operators.

The distance of two operators is in octaves: the root of the sum of squares of differences of their sizes' logarithms
(to base 2), where each mark that differs (a name, a layout, whether it is a backward pass) counts as one octave.
Operators of other dtypes have none, but float16 and bfloat16, whose kernels are alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scenarios.config.gpu import Gpu
from scenarios.kernel_tables.merged import merged
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.rows import Gather
from sim.operators.laws import seconds
from sim.operators.tables.signature import ALIKE

# Corrections are those of a Gaussian process (kriging) through the nearest measurements: the logarithms of measured
# times over the law's have a covariance of exp(-distance / _REACH), and each has noise of its own, which is also what a
# law misses at some sizes and not at their neighbours. Both were chosen on 3,974 float32 products of NeuSight and 144
# operators of an H200, where half or double of them change the errors of those left out by 0.1 of 4 to 6 %.
_NEAREST = 16
_REACH = 2.0
_NOISE = 0.3
# From so many measurements on a family is tried on itself, each predicted by the others: unless these are nearer than
# the law alone, by more than two standard errors, or where there are fewer, only exact matches count.
_ENOUGH = 5
_MOST_TRIED = 256
# Operators that are this near, 2 % in one size, are taken for the same: descriptions of a trace have rounded means.
_ALIKE = 0.03

Array = npt.NDArray[np.float64]
Marks = npt.NDArray[np.int64]


class Correction(NamedTuple):
    """The logarithm of what a law's time is multiplied by, and from 0 to 1 how much of that is known.

    What is not known is taken to be 0 in it already, or as another correction says. `is_measured`: the operator itself
    was measured, in a row that describes it.
    """

    log_factor: float
    weight: float
    is_measured: bool = False

    @property
    def factor(self) -> float:
        """What a law's time is multiplied by."""
        return math.exp(self.log_factor)


NONE = Correction(0.0, 0.0)


class _Features(NamedTuple):
    """An operator as a point: what it shares with all that it is compared with, marks, and logarithms of sizes."""

    family: tuple[object, ...]
    marks: tuple[object, ...]
    sizes: tuple[float, ...]


class Nearest:
    """All rows of a table, by families whose operators have distances."""

    def __init__(self, rows: Sequence[MeasuredOperator], gpu: Gpu) -> None:
        members: dict[tuple[object, ...], list[_Member]] = defaultdict(list)
        for row in merged([rows]):
            for operation in row.operations:
                members[_features(operation).family].append(_Member(operation, row))
        self._families = {family: _Family(_best(own), gpu) for family, own in members.items()}

    def correction(self, operation: Operation) -> Correction:
        """Return how measurements correct the law of an operator; `NONE` if nothing like it was measured."""
        point = _features(operation)
        family = self._families.get(point.family)
        return NONE if family is None else family.correction(operation, point)

    def left_out(self) -> Iterator[tuple[Operation, float, float]]:
        """Yield each operator with the logarithm of its measured time over the law's, and what the others say it is."""
        for family in self._families.values():
            yield from family.left_out()


@dataclass(frozen=True, slots=True)
class _Member:
    """An operator of a measured row; a row of several tells of each what it tells of all together."""

    operation: Operation
    row: MeasuredOperator

    @property
    def is_part(self) -> bool:
        return len(self.row.operations) > 1


class _Family:
    """Measured operators that have distances."""

    def __init__(self, members: Sequence[_Member], gpu: Gpu) -> None:
        self._members, self._gpu = members, gpu
        points = [_features(one.operation) for one in members]
        self._sizes: Array = np.array([point.sizes for point in points])
        self._marks = np.array([list(map(hash, point.marks)) for point in points], dtype=np.int64)
        self._is_partial = [_is_partial(one.operation) for one in members]
        self._values: dict[int, float] = {}

    def correction(self, operation: Operation, point: _Features) -> Correction:
        """Return how the family corrects the law of an operator at that point."""
        sizes, marks = np.array(point.sizes), np.array(list(map(hash, point.marks)), dtype=np.int64)
        distances = _distances(self._sizes, self._marks, sizes, marks)
        nearest = int(distances.argmin())
        if distances[nearest] <= _ALIKE:
            return Correction(self._value(nearest, operation), 1.0, is_measured=True)
        return self._between(distances, operation) if self._tells else NONE

    def left_out(self) -> Iterator[tuple[Operation, float, float]]:
        """Yield as `Nearest.left_out`; nothing of operators that are not known in full."""
        for place, said in self._tried(range(len(self._members))):
            operation = self._members[place].operation
            yield operation, self._value(place, operation), said if self._tells else 0.0

    @cached_property
    def _tells(self) -> bool:
        """Whether the measurements tell of each other: nearer than the law alone when each is left out in turn."""
        places = [place for place, is_partial in enumerate(self._is_partial) if not is_partial]
        if len(places) < _ENOUGH:
            return False
        tried = list(self._tried(places[:: -(-len(places) // _MOST_TRIED)]))
        values = np.array([self._value(place, self._members[place].operation) for place, _ in tried])
        said = np.array([each for _, each in tried])
        gains = np.abs(np.expm1(-values)) - np.abs(np.expm1(said - values))
        return bool(gains.mean() > 2 * gains.std() / math.sqrt(len(gains)))

    def _tried(self, places: Sequence[int]) -> Iterator[tuple[int, float]]:
        """Yield what all but one of the members say of that one."""
        for place in places:
            if self._is_partial[place] or len(self._members) < 2:
                continue
            distances = _distances(self._sizes, self._marks, self._sizes[place], self._marks[place])
            distances[place] = math.inf
            yield place, self._between(distances, self._members[place].operation).log_factor

    def _between(self, distances: Array, operation: Operation) -> Correction:
        """Return the correction at a point that has such distances from the members."""
        count = min(_NEAREST, int(np.isfinite(distances).sum()))
        places = np.argpartition(distances, count - 1)[:count]
        values = np.array([self._value(int(place), operation) for place in places])
        sizes, marks = self._sizes[places], self._marks[places]
        apart = _distances(sizes[:, None], marks[:, None], sizes, marks)
        covariance = np.exp(-apart / _REACH) + _NOISE * np.eye(count)
        here = np.exp(-distances[places] / _REACH)
        weights = np.linalg.solve(covariance, here)
        return Correction(float(weights @ values), float(weights @ here))

    def _value(self, place: int, operation: Operation) -> float:
        """Return the logarithm of a member's time over the law's; what is not known of it is as of `operation`."""
        if self._is_partial[place]:
            return _log_over_law(self._members[place].row, self._gpu, operation)
        found = self._values.get(place)
        if found is None:
            found = self._values[place] = _log_over_law(self._members[place].row, self._gpu, operation)
        return found


def _distances(sizes: Array, marks: Marks, of_sizes: Array, of_marks: Marks) -> Array:
    """Return the distances of points from others, which broadcast; sizes that are not known of either have none."""
    squares = np.nansum(np.square(sizes - of_sizes), axis=-1)
    distances: Array = np.sqrt(squares + (marks != of_marks).sum(axis=-1))
    return distances


def _log_over_law(row: MeasuredOperator, gpu: Gpu, like: Operation) -> float:
    law_s = sum(seconds(_completed(each, like), gpu, is_cold=row.is_cold) for each in row.operations)
    return math.log(row.us * 1e-6 / law_s)


def _best(members: Iterable[_Member]) -> list[_Member]:
    """Return one member for each operator: that of a row of it alone, if there is one, and of most calls."""
    by_operation: dict[Operation, list[_Member]] = defaultdict(list)
    for one in members:
        by_operation[one.operation].append(one)
    return [max(own, key=lambda one: (not one.is_part, one.row.calls)) for own in by_operation.values()]


def _is_partial(operation: Operation) -> bool:
    """Whether a description leaves open how many different rows its ids name, as a profiler's trace does."""
    if isinstance(operation, (BagsForward, BagsBackward)):
        return not operation.bags.unique
    return isinstance(operation, Gather) and not operation.unique


def _completed(operation: Operation, like: Operation) -> Operation:
    """Return an operator with what is not known of its ids as another one has it, in proportion."""
    if not _is_partial(operation):
        return operation
    if isinstance(operation, (BagsForward, BagsBackward)) and isinstance(like, type(operation)):
        return replace(operation, bags=_completed_bags(operation.bags, like.bags))
    if isinstance(operation, Gather) and isinstance(like, Gather) and like.rows:
        return replace(operation, unique=round(like.unique * operation.rows / like.rows))
    return operation


def _completed_bags(bags: Bags, like: Bags) -> Bags:
    factor = bags.ids / max(like.ids, 1)
    return replace(
        bags,
        unique=max(1, round(like.unique * factor)),
        long_runs=round(like.long_runs * factor),
        longest=like.longest,
    )


def _features(operation: Operation) -> _Features:
    family: list[object] = [type(operation).__name__]
    marks: list[object] = []
    sizes: list[float] = []
    _collect(operation, family, marks, sizes)
    # A size that may be left out is a mark then, and so of another family.
    return _Features((*family, len(marks), len(sizes)), tuple(marks), tuple(sizes))


# Counts of which 0 says that they are not known: they have no distance then.
_MAY_BE_UNKNOWN: Mapping[type, frozenset[str]] = {
    Bags: frozenset({"unique", "long_runs", "longest"}),
    Gather: frozenset({"unique"}),
}


def _collect(value: Any, family: list[object], marks: list[object], sizes: list[float]) -> None:
    unknown = _MAY_BE_UNKNOWN.get(type(value), frozenset()) if not getattr(value, "unique", 1) else frozenset()
    for one in fields(value):
        held = getattr(value, one.name)
        if is_dataclass(held):
            _collect(held, family, marks, sizes)
        elif isinstance(held, tuple) and any(map(is_dataclass, held)):
            family.append(len(held))
            for each in held:
                _collect(each, family, marks, sizes)
        elif one.name in unknown:
            sizes.append(math.nan)
        elif isinstance(held, tuple):
            sizes += [_log(sum(held)), _log(len(held))]
        elif isinstance(held, (int, float)) and not isinstance(held, bool):
            sizes.append(_log(held))
        else:
            (family if "dtype" in one.name else marks).append(ALIKE.get(held, held))


def _log(size: float) -> float:
    """Return the logarithm of a size to base 2; of nothing that of a half."""
    return math.log2(size) if size > 0 else -1.0

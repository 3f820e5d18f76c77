"""Corrects laws by the measured operators with the nearest shapes, for any family of operators.

The distance of two operators is in octaves: the root of the sum of squared differences of their sizes' logarithms (to
base 2), where each mark that differs (a name, a layout, whether it is a backward pass) counts as one octave. Operators
of different dtypes have no distance, except float16 and bfloat16, whose kernels perform equally.
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
from scenarios.kernel_tables.row import MeasuredOperator, merge_rows
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
# A family of at least _ENOUGH measurements is cross-validated, each predicted by the others: unless they beat the law
# alone by more than two standard errors, only exact matches count, as in smaller families.
_ENOUGH = 5
_MOST_TRIED = 256
# Distance up to which operators count as equal, 2 % in one size: descriptions of a trace have rounded means.
_ALIKE = 0.03

Array = npt.NDArray[np.float64]
Marks = npt.NDArray[np.int64]


class Correction(NamedTuple):
    """A factor on a law's time, as its logarithm, and the share of it that measurements determine, from 0 to 1.

    The rest is already counted as 0 in `log_factor`, or comes from another correction. `is_measured`: a row describes
    this very operator.
    """

    log_factor: float
    weight: float
    is_measured: bool = False

    @property
    def factor(self) -> float:
        """Factor on a law's time."""
        return math.exp(self.log_factor)


NONE = Correction(0.0, 0.0)


class _Features(NamedTuple):
    """An operator as a point: the family that it can be compared within, its marks, and the logarithms of its sizes."""

    family: tuple[object, ...]
    marks: tuple[object, ...]
    sizes: tuple[float, ...]


class Nearest:
    """A table's rows, by families of operators with distances."""

    def __init__(self, rows: Sequence[MeasuredOperator], gpu: Gpu) -> None:
        members: dict[tuple[object, ...], list[_MeasuredMember]] = defaultdict(list)
        for row in merge_rows([rows]):
            for operation in row.operations:
                members[_features(operation).family].append(_MeasuredMember(operation, row))
        self._families = {family: _Family(_best(own), gpu) for family, own in members.items()}

    def correction(self, operation: Operation) -> Correction:
        """Return the correction of an operator's law; `NONE` if nothing comparable was measured."""
        point = _features(operation)
        family = self._families.get(point.family)
        return NONE if family is None else family.correction(operation, point)

    def leave_one_out(self) -> Iterator[tuple[Operation, float, float]]:
        """Yield each operator with the logarithm of its measured time over the law's, and its prediction from the
        others.
        """
        for family in self._families.values():
            yield from family.leave_one_out()


@dataclass(frozen=True, slots=True)
class _MeasuredMember:
    """An operator of a measured row; a row of several operators gives each the ratio of all together."""

    operation: Operation
    row: MeasuredOperator

    @property
    def is_part(self) -> bool:
        return len(self.row.operations) > 1


class _Family:
    """A set of measured operators that have distances."""

    def __init__(self, members: Sequence[_MeasuredMember], gpu: Gpu) -> None:
        self._members, self._gpu = members, gpu
        points = [_features(one.operation) for one in members]
        self._sizes: Array = np.array([point.sizes for point in points])
        self._marks = np.array([list(map(hash, point.marks)) for point in points], dtype=np.int64)
        self._is_partial = [_is_partial(one.operation) for one in members]
        self._values: dict[int, float] = {}

    def correction(self, operation: Operation, point: _Features) -> Correction:
        """Return the correction of an operator's law at that point."""
        sizes, marks = np.array(point.sizes), np.array(list(map(hash, point.marks)), dtype=np.int64)
        distances = _distances(self._sizes, self._marks, sizes, marks)
        nearest = int(distances.argmin())
        if distances[nearest] <= _ALIKE:
            return Correction(self._value(nearest, operation), 1.0, is_measured=True)
        return self._interpolate(distances, operation) if self._tells else NONE

    def leave_one_out(self) -> Iterator[tuple[Operation, float, float]]:
        """Yield as `Nearest.leave_one_out` does, without operators whose ids are not fully known."""
        for place, predicted in self._cross_validate(range(len(self._members))):
            operation = self._members[place].operation
            yield operation, self._value(place, operation), predicted if self._tells else 0.0

    @cached_property
    def _tells(self) -> bool:
        """True if the measurements predict each other better than the law alone, when each is left out in turn."""
        places = [place for place, is_partial in enumerate(self._is_partial) if not is_partial]
        if len(places) < _ENOUGH:
            return False
        tried = list(self._cross_validate(places[:: -(-len(places) // _MOST_TRIED)]))
        values = np.array([self._value(place, self._members[place].operation) for place, _ in tried])
        predicted = np.array([each for _, each in tried])
        gains = np.abs(np.expm1(-values)) - np.abs(np.expm1(predicted - values))
        return bool(gains.mean() > 2 * gains.std() / math.sqrt(len(gains)))

    def _cross_validate(self, places: Sequence[int]) -> Iterator[tuple[int, float]]:
        """Yield the prediction of each member at `places` from all others."""
        for place in places:
            if self._is_partial[place] or len(self._members) < 2:
                continue
            distances = _distances(self._sizes, self._marks, self._sizes[place], self._marks[place])
            distances[place] = math.inf
            yield place, self._interpolate(distances, self._members[place].operation).log_factor

    def _interpolate(self, distances: Array, operation: Operation) -> Correction:
        """Return the correction at a point with these distances from the members."""
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
        """Return the logarithm of a member's time over the law's, with unknown properties of its ids taken from
        `operation`.
        """
        if self._is_partial[place]:
            return _log_over_law(self._members[place].row, self._gpu, operation)
        found = self._values.get(place)
        if found is None:
            found = self._values[place] = _log_over_law(self._members[place].row, self._gpu, operation)
        return found


def _distances(sizes: Array, marks: Marks, of_sizes: Array, of_marks: Marks) -> Array:
    """Return the distances between points, with broadcasting; a size unknown for either point does not count."""
    squares = np.nansum(np.square(sizes - of_sizes), axis=-1)
    distances: Array = np.sqrt(squares + (marks != of_marks).sum(axis=-1))
    return distances


def _log_over_law(row: MeasuredOperator, gpu: Gpu, like: Operation) -> float:
    law_s = sum(seconds(_complete(each, like), gpu, is_cold=row.is_cold) for each in row.operations)
    return math.log(row.us * 1e-6 / law_s)


def _best(members: Iterable[_MeasuredMember]) -> list[_MeasuredMember]:
    """Return one member per operator: from a row of that operator alone if there is one, with the most calls."""
    by_operation: dict[Operation, list[_MeasuredMember]] = defaultdict(list)
    for one in members:
        by_operation[one.operation].append(one)
    return [max(own, key=lambda one: (not one.is_part, one.row.calls)) for own in by_operation.values()]


def _is_partial(operation: Operation) -> bool:
    """Return whether a description lacks the number of distinct rows that its ids name, as a profiler's trace does."""
    if isinstance(operation, (BagsForward, BagsBackward)):
        return not operation.bags.unique
    return isinstance(operation, Gather) and not operation.unique


def _complete(operation: Operation, like: Operation) -> Operation:
    """Return an operator whose unknown properties of ids are those of `like`, scaled to the operator's size."""
    if not _is_partial(operation):
        return operation
    if isinstance(operation, (BagsForward, BagsBackward)) and isinstance(like, type(operation)):
        return replace(operation, bags=_complete_bags(operation.bags, like.bags))
    if isinstance(operation, Gather) and isinstance(like, Gather) and like.rows:
        return replace(operation, unique=round(like.unique * operation.rows / like.rows))
    return operation


def _complete_bags(bags: Bags, like: Bags) -> Bags:
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
    # An optional size that is absent counts as a mark, so the counts separate the families.
    return _Features((*family, len(marks), len(sizes)), tuple(marks), tuple(sizes))


# Counts whose 0 means unknown: they then add no distance.
_MAY_BE_UNKNOWN: Mapping[type, frozenset[str]] = {
    Bags: frozenset({"unique", "long_runs", "longest"}),
    Gather: frozenset({"unique"}),
}


def _collect(value: Any, family: list[object], marks: list[object], sizes: list[float]) -> None:
    unknown = _MAY_BE_UNKNOWN.get(type(value), frozenset()) if not getattr(value, "unique", 1) else frozenset()
    for one in fields(value):
        content = getattr(value, one.name)
        if is_dataclass(content):
            _collect(content, family, marks, sizes)
        elif isinstance(content, tuple) and any(map(is_dataclass, content)):
            family.append(len(content))
            for each in content:
                _collect(each, family, marks, sizes)
        elif one.name in unknown:
            sizes.append(math.nan)
        elif isinstance(content, tuple):
            sizes += [_log(sum(content)), _log(len(content))]
        elif isinstance(content, (int, float)) and not isinstance(content, bool):
            sizes.append(_log(content))
        else:
            (family if "dtype" in one.name else marks).append(ALIKE.get(content, content))


def _log(size: float) -> float:
    """Return the logarithm of a size to base 2; size 0 counts as a half."""
    return math.log2(size) if size > 0 else -1.0

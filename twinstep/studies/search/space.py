"""Maps a study's axes to Optuna's parameters, which number an axis's rows, and back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from twinstep.studies.conditions import same
from twinstep.studies.points import combine_axes
from twinstep.studies.ranges import number_of
from twinstep.studies.study_file import Study, StudyAxis

Params = Mapping[str, int]


class Space:
    """A space with a parameter for each axis, named by its keys: ordered where its values are, else categorical."""

    def __init__(self, study: Study) -> None:
        self._axes = {", ".join(axis.keys): axis for axis in study.axes}
        # Parameters are row numbers, because values may be tables, or quantities with units.
        self.distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(axis.rows) - 1)
            if _is_ordered(axis.rows)
            else CategoricalDistribution(range(len(axis.rows)))
            for name, axis in self._axes.items()
        }

    def values(self, params: Params) -> dict[str, object]:
        """Return a point's values by key, without axes whose condition does not hold."""
        rows = [axis.rows[params[name]] for name, axis in self._axes.items()]
        return combine_axes(tuple(self._axes.values()), rows)

    def params(self, values: Mapping[str, object]) -> dict[str, int]:
        """Return Optuna's parameters (row numbers) of the axes that have these values, or may leave their keys unset.

        The sampler chooses the other parameters.
        """
        matching = {name: _row_of(axis, values) for name, axis in self._axes.items()}
        return {name: row for name, row in matching.items() if row is not None}

    def draw_point(self, draw: random.Random) -> dict[str, int]:
        """Draw a point at random."""
        return {name: draw.randrange(len(axis.rows)) for name, axis in self._axes.items()}


def _row_of(axis: StudyAxis, values: Mapping[str, object]) -> int | None:
    unset = (None,) * len(axis.keys)
    wanted = tuple(values.get(key) for key in axis.keys)
    matching = (at for at, row in enumerate(axis.rows) if all(map(same, row, wanted)))
    return next(matching, axis.rows.index(unset) if unset in axis.rows else None)


def _is_ordered(rows: Sequence[Sequence[object]]) -> bool:
    """Return whether the first key's values are rising numbers, or quantities of one unit."""
    matching = [_number(row[0]) for row in rows]
    numbers = [number for number, _ in matching]
    is_rising = all(one < other for one, other in pairwise(numbers))
    return is_rising and len({unit for _, unit in matching}) == 1 and matching[0][1] is not None


def _number(value: object) -> tuple[float, str | None]:
    """Return a number and its unit, "" without unit; the unit None means that the value is no number."""
    try:
        return number_of(value)
    except ValueError:
        return 0.0, None

"""Fit the NCCL figures of one cluster to every second size of measured rows; the other sizes are held out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from reports.analysis.statistics import weighted_lower_median
from reports.errors import ReportError
from reports.published.collectives import PublishedRow
from reports.published.errors import LARGE_BYTES
from reports.published.outcome import tell_missed
from reports.terminal import text
from scenarios.seam.traits import TESTED, TRAITS, Traits

# Below 4 KiB start-up is too small a part of an operation's time; above 256 KiB bytes dominate.
SMALL_BYTES = (4 << 10, 256 << 10)
LEAST_ROWS = 3  # rows of the fitted half that one figure needs

_COLLECTIVES = tuple(verb for verb in TESTED if TRAITS.get(verb, Traits()).function)
_ROUNDS = 20  # a few suffice, because the figures hardly depend on each other
_SAME = 1e-5  # relative; times are whole ns, so smaller differences do not show that a figure matters
_SEEN = 0.005  # share of a time below which no note is written
_UNLIKE = 1.05  # ratio of the efficiencies that one node and several fit best, from which a note is written
_DIGITS = 4
_MOST_NS, _MOST_X = 1e9, 1e6  # a second, and the inverse of a share of a millionth
_STEP_NS, _STEP = 10_000, 0.1  # distance to the second point of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A profile's NCCL figures, by the names of `scenarios.config.hardware.Cluster`."""

    nccl_efficiency: float
    nccl_start_ns: int
    nccl_p2p_share: float


# Predicts the time of a row, in us.
Predicted: TypeAlias = Callable[[PublishedRow, Figures], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A key of a profile with its old and new value (a time: in ns), and the rows that it was fitted to."""

    key: str
    present: float
    value: float
    rows: tuple[PublishedRow, ...]


class HeldOut(NamedTuple):
    """A row that was not fitted: its signed errors with the old and the fitted figures."""

    row: PublishedRow
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fit of NCCL's figures; `notes` are sentences on what the rows cannot determine."""

    figures: Figures
    fitted: tuple[Fitted, ...]
    held_out: tuple[HeldOut, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FittedFigure:
    """A figure, either a time or a share, and the rows that determine it.

    Its `x` is the quantity in which times are straight lines: a time itself (ns), or the inverse of a share.
    """

    name: str
    is_time: bool
    ops: tuple[str, ...]
    least_bytes: int
    most_bytes: float
    about: str

    def tells(self, row: PublishedRow) -> bool:
        """Return whether this operation and size are used for the figure."""
        return row.op in self.ops and self.least_bytes <= row.size_bytes <= self.most_bytes

    @property
    def field(self) -> str:
        """Name of the figure's field in `Figures`, with its unit."""
        return f"{self.name}_ns" if self.is_time else self.name

    def get(self, figures: Figures) -> float:
        value: float = getattr(figures, self.field)
        return value

    def put(self, value: float, figures: Figures) -> Figures:
        changed: dict[str, float] = {self.field: round(value) if self.is_time else value}
        return dataclasses.replace(figures, **changed)  # type: ignore[arg-type]

    def nearest_allowed(self, x: float) -> float:
        """Return the nearest figure that a profile accepts, rounded to its digits."""
        value = min(max(x, 0.0), _MOST_NS) if self.is_time else 1 / min(max(x, 1.0), _MOST_X)
        return float(f"{value:.{_DIGITS}g}")


_KEYS = (
    _FittedFigure(
        name="nccl_efficiency", is_time=False, ops=_COLLECTIVES, least_bytes=LARGE_BYTES, most_bytes=math.inf,
        about="collectives of 16 MiB and more",
    ),
    _FittedFigure(
        name="nccl_start", is_time=True, ops=_COLLECTIVES, least_bytes=SMALL_BYTES[0], most_bytes=SMALL_BYTES[1],
        about="collectives of 4 to 256 KiB",
    ),
    _FittedFigure(
        name="nccl_p2p_share", is_time=False, ops=("all_to_all",), least_bytes=LARGE_BYTES, most_bytes=math.inf,
        about="all_to_all of 16 MiB and more",
    ),
)  # fmt: skip


def fit(rows: Sequence[PublishedRow], present: Figures, predicted: Predicted) -> Fit:
    """Fit each figure that at least `LEAST_ROWS` rows of the fitted half determine; the others stay.

    Every second size of an operation on one scale is fitted, from the smallest usable size on. A figure minimises the
    mean of the errors' sizes, which a few wild rows do not move, given the others.

    Args:
        rows: NCCL's, each of which `predicted` can predict.
        present: the profile's figures.
        predicted: predicts the time of a row.

    Raises:
        ReportError: no figure has enough rows, or none would be left to hold out.
    """
    solver = _Solver(predicted)
    halves = {key.name: _fitted_half([row for row in rows if key.tells(row)]) for key in _KEYS}
    telling = {key.name: solver.telling(key, halves[key.name], present) for key in _KEYS}
    keys = [key for key in _KEYS if len(telling[key.name]) >= LEAST_ROWS]
    said = [_missing(key, halves[key.name], telling[key.name]) for key in _KEYS if key not in keys]
    if not keys:
        raise ReportError(f"too few rows to fit anything: {'; '.join(said)}")
    used = {row for key in keys for row in telling[key.name]}
    rest = [row for row in rows if row not in used]
    if not rest:
        raise ReportError("too few rows to fit anything: none would be left to hold out; expected several sizes")
    figures = solver.settle(keys, telling, present)
    notes = [f"{sentence}: the profile's figure stays" for sentence in said]
    for key in keys:
        notes += filter(None, (look(key, telling[key.name], figures) for look in (solver.unlike, solver.at_bound)))
    return Fit(
        figures=figures,
        fitted=tuple(
            Fitted(key=key.name, present=key.get(present), value=key.get(figures), rows=tuple(telling[key.name]))
            for key in keys
        ),
        held_out=tuple(
            HeldOut(row, *(predicted(row, each) / row.time_us - 1 for each in (present, figures))) for row in rest
        ),
        notes=tuple(notes),
    )


def choose(joined: pd.DataFrame, rows: Sequence[PublishedRow]) -> tuple[list[PublishedRow], str, list[str]]:
    """Return NCCL's rows that can be predicted, their profile, and a sentence for each reason why others cannot.

    `joined` is the result of `collectives.join` for `rows`.

    Raises:
        ReportError: there is no such row, or their GPUs have several profiles.
    """
    of_nccl, known = joined["library"] == "nccl", joined["predicted_us"].notna()
    chosen = [row for row, taken in zip(rows, of_nccl & known, strict=True) if taken]
    reasons = list(tell_missed(joined))
    if not all(of_nccl):
        reasons.append(f"{text.count_words(int((~of_nccl).sum()), 'row')} of another library than NCCL: not fitted")
    profiles = sorted(set(joined["profile"][of_nccl & known]))
    if not chosen:
        raise ReportError("\n".join([*reasons, "no rows of NCCL that can be predicted: nothing to fit"]))
    if len(profiles) > 1:
        raise ReportError(f"rows on {', '.join(profiles)}: expected those of one kind of host, or --profile")
    return chosen, profiles[0], reasons


def _fitted_half(rows: Iterable[PublishedRow]) -> list[PublishedRow]:
    """Return every second size of each operation on each scale, with all repeats of that size."""
    series: dict[tuple[object, ...], list[PublishedRow]] = {}
    for row in rows:
        where = (row.op, row.nodes, row.gpus_per_node, row.link_gbit_per_s, row.one_way_delay_ms)
        series.setdefault(where, []).append(row)
    chosen = []
    for members in series.values():
        sizes = sorted({row.size_bytes for row in members})[::2]
        chosen += [row for row in members if row.size_bytes in sizes]
    return chosen


def _missing(key: _FittedFigure, half: Sequence[PublishedRow], telling: Sequence[PublishedRow]) -> str:
    """Return why the rows do not determine the figure."""
    found = f"{text.count_words(len(half), 'row')} of {key.about} in the half that is fitted"
    if half:
        found += f", of which {len(telling)} depend on it"
    return f"{key.name}: {found}; expected {LEAST_ROWS}"


class _Solver:
    """A fit of one figure after the other, repeated until none moves."""

    def __init__(self, predicted: Predicted) -> None:
        self._predicted = cache(predicted)

    def telling(self, key: _FittedFigure, half: Iterable[PublishedRow], figures: Figures) -> list[PublishedRow]:
        """Return the rows whose time depends on the figure: a link of another kind may decide."""
        return [row for row in half if self._lines(key, [row], figures)[0]]

    def settle(
        self, keys: Sequence[_FittedFigure], halves: Mapping[str, Sequence[PublishedRow]], present: Figures
    ) -> Figures:
        """Return the figures at which each is the best, given the others."""
        figures = present
        for _ in range(_ROUNDS):
            before = figures
            for key in keys:
                figures = self._settle(key, halves[key.name], figures)
            if figures == before:
                break
        return figures

    def unlike(self, key: _FittedFigure, half: Sequence[PublishedRow], figures: Figures) -> str:
        """Return a note if one node's links and the network need different efficiencies; "" if not, or unknown."""
        parts = [[row for row in half if (row.nodes > 1) == several] for several in (False, True)]
        if key.name != "nccl_efficiency" or min(map(len, parts)) < LEAST_ROWS:
            return ""
        one, several = (key.get(self._settle(key, part, figures)) for part in parts)
        if max(one, several) / min(one, several) < _UNLIKE:
            return ""
        return (
            f"{key.name}: rows of one node ask for {one:.3g}, those of several, whose NICs decide, for {several:.3g};"
            " no one figure fits both"
        )

    def at_bound(self, key: _FittedFigure, half: Sequence[PublishedRow], figures: Figures) -> str:
        """Return a note if the rows need a faster figure than possible; "" if not."""
        bound = 0 if key.is_time else 1
        left = float(np.median([self._predicted(row, figures) / row.time_us for row in half])) - 1
        if key.get(figures) != bound or left < _SEEN:
            return ""
        return f"{key.name}: even at {bound} its rows are predicted {text.signed_percent(left)} too slow in the median"

    def _settle(self, key: _FittedFigure, rows: Sequence[PublishedRow], figures: Figures) -> Figures:
        wanted, weights = self._lines(key, rows, figures)
        if not wanted:
            return figures
        # of the `x` that fit a row exactly, the one with the least sum of relative errors
        one_group = np.zeros(len(wanted), np.int64)
        (median,) = weighted_lower_median(one_group, np.array(wanted), np.array(weights), 1)
        return key.put(key.nearest_allowed(float(median)), figures)

    def _lines(
        self, key: _FittedFigure, rows: Iterable[PublishedRow], figures: Figures
    ) -> tuple[list[float], list[float]]:
        """Return for each row the `x` of the figure at which it is predicted exactly, and its weight.

        Rows that do not depend on the figure are left out.
        """
        value = key.get(figures)
        x = value if key.is_time else 1 / value
        step = _STEP_NS if key.is_time else _STEP * x
        further = key.put(x + step if key.is_time else 1 / (x + step), figures)
        wanted, weights = [], []
        for row in rows:
            here, there = self._predicted(row, figures), self._predicted(row, further)
            slope = (there - here) / step
            if there > (1 + _SAME) * here:
                wanted.append(x + (row.time_us - here) / slope)
                weights.append(slope / row.time_us)
        return wanted, weights

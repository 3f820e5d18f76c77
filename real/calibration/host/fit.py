"""From the host's times for snippets to the prices of what it does, and how far off these are; pure arithmetic.

A snippet takes the launches of its kernels, which the profile has, and each count times its price. Errors are relative
and the logarithm's. Prices are `like`'s times factors that the snippets give; as some prices are seen together alone,
or not at all, factors are drawn to their mean, weakly: a price that no snippet has changes by that mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from real.calibration.host.counted import Counted
from real.calibration.kernels.fit import group_of
from scenarios.config.host_costs import Eager
from scenarios.config.provenance import Group
from scenarios.seam.host_work import HostWork

Floats = npt.NDArray[np.float64]

# By price of `Eager`, the count that it prices.
PRICES = {
    **dict(zip(("dispatch", "operator", "product", "pass", "node"), HostWork._fields[:5], strict=True)),
    **{"gradient": "gradients", "bags": "bags", "call": "calls", "collective": "collectives"},
}
# Snippets are off by a tenth, and a machine's prices by half from their mean: what a factor's distance weighs.
_TIE = 0.1 / 0.5
# Beyond this error a snippet no longer counts with its square (Huber).
_ROBUST = 0.25
# Of Gauss-Newton, on logarithms: the most steps, the longest, and the one that is short enough to be the last.
_STEPS, _STRIDE, _CLOSE = 100, 0.5, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A snippet: its counts, and what the host took for it, in ns, once a round."""

    name: str
    counted: Counted
    taken_ns: tuple[int, ...]

    @property
    def median_ns(self) -> float:
        """The median of the rounds."""
        return median(self.taken_ns)

    def predicted_ns(self, eager: Eager) -> float:
        """Return what the host takes with these prices."""
        return self.counted.launches_ns + float(_row(self.counted) @ _prices(eager))

    def error(self, eager: Eager) -> float:
        """Return predicted over measured, less 1."""
        return self.predicted_ns(eager) / self.median_ns - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """Fitted prices: `unseen` are those that no snippet has, `factor` is what these were multiplied with."""

    eager: Eager
    factor: float
    unseen: tuple[str, ...]


def fit(timed: Sequence[Timed], like: Eager) -> HostFit:
    """Return the prices with which the counts give what snippets took, beginning from those of `like`."""
    known = np.array([each.counted.launches_ns for each in timed], float)
    parts = np.stack([_row(each.counted) for each in timed]) * _prices(like)
    taken = np.array([each.median_ns for each in timed])
    count = len(PRICES)
    ties = _TIE * np.concatenate([np.eye(count), -np.ones((count, 1))], axis=1)
    factors = np.zeros(count + 1)  # logarithms; the last is the mean
    for _ in range(_STEPS):
        shares = parts * np.exp(factors[:count])
        predicted = known + shares.sum(axis=1)
        errors = np.log(taken / predicted)
        weights = np.sqrt(np.minimum(1.0, _ROBUST / np.maximum(np.abs(errors), 1e-12)))
        slopes = np.concatenate([shares / predicted[:, None], np.zeros((len(timed), 1))], axis=1)
        matrix = np.concatenate([slopes * weights[:, None], ties])
        step = np.linalg.lstsq(matrix, np.concatenate([errors * weights, -ties @ factors]), rcond=None)[0]
        factors = factors + np.clip(step, -_STRIDE, _STRIDE)
        if np.max(np.abs(step)) < _CLOSE:
            break
    prices = _prices(like) * np.exp(factors[:count])
    found = {f"{name}_ns": max(1, round(price)) for name, price in zip(PRICES, prices.tolist(), strict=True)}
    unseen = tuple(name for name, part in zip(PRICES, parts.T, strict=True) if not part.any())
    return HostFit(eager=dataclasses.replace(like, **found), factor=float(np.exp(factors[count])), unseen=unseen)


def judge(timed: Sequence[Timed], eager: Eager) -> Group:
    """Return how far the prices are off the snippets; sizes are bytes that their kernels move."""
    spreads = [float(np.subtract(*np.quantile(each.taken_ns, [0.75, 0.25]))) / each.median_ns for each in timed]
    sizes = [size for each in timed for size in each.counted.moved_bytes]
    return group_of("host of eager programs", [each.error(eager) for each in timed], spreads, sizes)


def together(
    counts: Mapping[str, Counted], taken_ns: Mapping[str, Sequence[int]], held_out: Collection[str]
) -> tuple[list[Timed], list[Timed]]:
    """Return the snippets that prices are fitted to, and those that they are checked on, of those that ran."""
    timed = [
        Timed(name=name, counted=counts[name], taken_ns=tuple(taken_ns[name])) for name in counts if name in taken_ns
    ]
    return [each for each in timed if each.name not in held_out], [each for each in timed if each.name in held_out]


def _row(counted: Counted) -> Floats:
    counts = {**counted.work._asdict(), "collectives": counted.collectives}
    return np.array([counts[name] for name in PRICES.values()], float)


def _prices(eager: Eager) -> Floats:
    return np.array([getattr(eager, f"{name}_ns") for name in PRICES], float)

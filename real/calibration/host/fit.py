"""Fits prices of the host's work to its times for snippets, and judges their errors; pure arithmetic.

A snippet's time is the launches of its kernels, at the profile's price, and each count times its price. Errors are
differences of logarithms. Prices are `like`'s times factors; because some prices occur only together, or not at all,
factors are weakly pulled to their mean: a price that no snippet shows changes by that mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from real.calibration.host.counted import Counted
from real.calibration.kernels.fit import fit_prices, group_of
from scenarios.config.host_costs import Eager
from scenarios.config.provenance import ErrorGroup
from scenarios.seam.host_work import HostWork

Floats = npt.NDArray[np.float64]

# Maps each price of `Eager` to the count that it prices.
PRICES = {
    **dict(zip(("dispatch", "operator", "product", "pass", "node"), HostWork._fields[:5], strict=True)),
    **{"gradient": "gradients", "bags": "bags", "call": "calls", "collective": "collectives"},
}
# Snippets deviate by a tenth, and prices by half from their mean: the weight of a factor's distance from the mean.
_TIE = 0.1 / 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSnippet:
    """A snippet: its counts, and the host's time for it in ns, one per round."""

    name: str
    counted: Counted
    taken_ns: tuple[int, ...]

    @property
    def median_ns(self) -> float:
        """The median time of the rounds, in ns."""
        return median(self.taken_ns)

    def predicted_ns(self, eager: Eager) -> float:
        """Return the host's time with these prices, in ns."""
        return self.counted.launches_ns + float(_row(self.counted) @ _prices(eager))

    def error(self, eager: Eager) -> float:
        """Return predicted over measured, less 1."""
        return self.predicted_ns(eager) / self.median_ns - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """A set of fitted prices: `unseen` are the prices that no snippet shows, multiplied by `factor`."""

    eager: Eager
    factor: float
    unseen: tuple[str, ...]


def fit(timed: Sequence[TimedSnippet], like: Eager) -> HostFit:
    """Fit prices to the snippets' times, starting from the prices of `like`."""
    known = np.array([each.counted.launches_ns for each in timed], float)
    parts = np.stack([_row(each.counted) for each in timed]) * _prices(like)
    measured_ns = np.array([each.median_ns for each in timed])
    count = len(PRICES)
    ties = _TIE * np.concatenate([np.eye(count), -np.ones((count, 1))], axis=1)
    # Logarithms; the last is the mean, which is no part of any time.
    with_mean = np.pad(parts, ((0, 0), (0, 1)))
    factors, _ = fit_prices(with_mean, measured_ns, np.zeros(count + 1), known=known, ties=ties)
    prices = _prices(like) * np.exp(factors[:count])
    # At least 1 ns: a price of 0 could not be scaled by a later fit, which works on logarithms.
    fitted = {f"{name}_ns": max(1, round(price)) for name, price in zip(PRICES, prices.tolist(), strict=True)}
    unseen = tuple(name for name, part in zip(PRICES, parts.T, strict=True) if not part.any())
    return HostFit(eager=dataclasses.replace(like, **fitted), factor=float(np.exp(factors[count])), unseen=unseen)


def judge(timed: Sequence[TimedSnippet], eager: Eager) -> ErrorGroup:
    """Return the error of the prices over the snippets; sizes are bytes that their kernels move."""
    spreads = [float(np.subtract(*np.quantile(each.taken_ns, [0.75, 0.25]))) / each.median_ns for each in timed]
    sizes = [size for each in timed for size in each.counted.moved_bytes]
    return group_of("host of eager programs", [each.error(eager) for each in timed], spreads, sizes)


def together(
    counts: Mapping[str, Counted], taken_ns: Mapping[str, Sequence[int]], held_out: Collection[str]
) -> tuple[list[TimedSnippet], list[TimedSnippet]]:
    """Return the snippets to fit prices to, and the held-out snippets to check them on; both without those that did not
    run.
    """
    timed = [
        TimedSnippet(name=name, counted=counts[name], taken_ns=tuple(taken_ns[name]))
        for name in counts
        if name in taken_ns
    ]
    return [each for each in timed if each.name not in held_out], [each for each in timed if each.name in held_out]


def _row(counted: Counted) -> Floats:
    counts = {**counted.work._asdict(), "collectives": counted.collectives}
    return np.array([counts[name] for name in PRICES.values()], float)


def _prices(eager: Eager) -> Floats:
    return np.array([getattr(eager, f"{name}_ns") for name in PRICES], float)

"""Draws durations that vary around their mean."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Varying:
    """A source of random factors, each the ratio of a duration to its mean."""

    __slots__ = ("_quantiles", "_random", "varies")

    def __init__(self, quantiles: Sequence[float], draw: str | None) -> None:
        """Draw ratios of an actual to a typical duration.

        Args:
            quantiles: quantiles of the ratio, equally far apart.
            draw: seeds the generator; None: each ratio is 1.
        """
        self._quantiles = quantiles
        self.varies = draw is not None and len(quantiles) > 1
        self._random = Random(draw) if self.varies else None

    def next(self) -> float:
        """Return the next ratio, linear between two quantiles."""
        if self._random is None:
            return 1.0
        place = self._random.random() * (len(self._quantiles) - 1)
        lower = int(place)
        low, high = self._quantiles[lower], self._quantiles[lower + 1]
        return low + (place - lower) * (high - low)

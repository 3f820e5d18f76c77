"""Draws durations that vary around their mean."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Varying:
    """Draws how long the next one takes, over the mean."""

    __slots__ = ("_quantiles", "_random", "varies")

    def __init__(self, quantiles: Sequence[float], draw: str | None) -> None:
        """`quantiles` over the mean, equally far apart; `draw` seeds the draws, with None each is the mean."""
        self._quantiles = quantiles
        self.varies = draw is not None and len(quantiles) > 1
        self._random = Random(draw) if self.varies else None

    def next(self) -> float:
        """Draw the next; between two quantiles every value is as likely as another."""
        if self._random is None:
            return 1.0
        place = self._random.random() * (len(self._quantiles) - 1)
        lower = int(place)
        low, high = self._quantiles[lower], self._quantiles[lower + 1]
        return low + (place - lower) * (high - low)

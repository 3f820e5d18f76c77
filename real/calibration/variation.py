"""How times vary from one to the next, as profiles say it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, quantiles

_QUANTILES = 20


def spread(times: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """Their mean, and their quantiles over it; the least and the most are left out, which others have made."""
    found = quantiles(times, n=_QUANTILES, method="inclusive")
    middle = mean((low + high) / 2 for low, high in pairwise(found))
    return middle, tuple(round(one / middle, 3) for one in found)

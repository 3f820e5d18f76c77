"""Computes the characteristic time of an LRU cache.

H. Che, Y. Tung, Z. Wang, Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002: a cache with room for C rows holds
the rows named in the last T, its characteristic time, where s(T) = C for the number s of distinct rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

# Upper limit of the search, in the unit of the caller's time.
LONGEST = 1e12


def characteristic_time(
    named: Callable[[float], float], room: float, *, shortest: float = 1 / LONGEST, halvings: int
) -> float:
    """Find the time in which `room` rows are named, between `shortest` and `LONGEST`.

    Args:
        named: returns the mean number of distinct rows named in a time; must grow with time.
        room: rows that fit into the cache.
        halvings: bisection steps on the logarithm of the time; the result is the upper end.
    """
    low, high = math.log(shortest), math.log(LONGEST)
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if named(math.exp(middle)) < room else (low, middle)
    return math.exp(high)

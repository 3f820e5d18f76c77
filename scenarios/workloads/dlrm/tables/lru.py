"""How long an LRU cache holds what has been named.

H. Che, Y. Tung, Z. Wang, Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002: a cache with room for C rows holds
what was named in the last T, its characteristic time, with so many different rows s(T) = C.
"""

from __future__ import annotations

import math
from collections.abc import Callable

# The longest time that is looked for, in whatever it is counted.
LONGEST = 1e12


def characteristic_time(
    named: Callable[[float], float], room: float, *, shortest: float = 1 / LONGEST, halvings: int
) -> float:
    """Find the time in which as many rows are named as there is room for, between `shortest` and `LONGEST`.

    Args:
        named: how many different rows are named in a time, in the mean; it grows with the time.
        room: rows that the cache has room for.
        halvings: of the interval in which the logarithm of the time lies: of what is left the end is taken.
    """
    low, high = math.log(shortest), math.log(LONGEST)
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if named(math.exp(middle)) < room else (low, middle)
    return math.exp(high)

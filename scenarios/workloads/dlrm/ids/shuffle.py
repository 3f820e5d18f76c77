"""Places the rows of a shuffled table by a bijection that depends only on the table's name, simulated or real."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from scenarios.config.scenario import Table

Ints = npt.NDArray[np.int64]

_GOLDEN = (math.sqrt(5) - 1) / 2
# Number of leading partial quotients of a step's fraction of the rows, each 1 to 3; the golden ratio's, all 1, follow.
_QUOTIENTS = 8

_CACHED = 1 << 12


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A bijection of a table's rows: the k-th most frequent one, from 0, is row (offset + k * step) mod rows.

    The step is coprime to the rows. Its fraction of the rows has a continued fraction of small quotients, like the
    golden ratio's, so that consecutive ranks are spread evenly over the table (Knuth, TAOCP vol. 3, 6.4), as hashing
    spreads real ids. Offset and step depend on the table's name: otherwise the most frequent rows of many tables would
    lie in one place, and load that place's GPU more than hashing does.
    """

    rows: int
    step: int
    offset: int

    @staticmethod
    def of(table: Table) -> Shuffle:
        """Return the bijection of a table, or of a feature of it: features of one table share its frequent rows."""
        return _of_name(table.feature_of or table.name, table.rows)

    def __call__(self, ranks: Ints) -> Ints:
        """Return the rows [n] of these ranks [n]; products fit into int64 for up to 2**41 rows."""
        if self.rows <= 1 << 31:
            return self._within(ranks * self.step + self.offset)
        low = 21  # in two parts
        high = self._within((ranks >> low) * self.step)
        return self._within(self._within((high << low) + (ranks & ((1 << low) - 1)) * self.step) + self.offset)

    def _within(self, numbers: Ints) -> Ints:
        """Return numbers modulo the rows: numpy divides six times as fast as it finds a remainder."""
        remainder: Ints = numbers - numbers // self.rows * self.rows
        return remainder


def table_seed(table: Table) -> int:
    """Return 64 bits that depend only on the name of a table, or of a feature's table, identical in every process."""
    return int.from_bytes(_digest(table.feature_of or table.name)[:8], "big")


@lru_cache(maxsize=_CACHED)
def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@lru_cache(maxsize=_CACHED)
def _of_name(name: str, rows: int) -> Shuffle:
    digest = _digest(name)
    fraction = _GOLDEN
    for byte in digest[8 : 8 + _QUOTIENTS]:
        fraction = 1 / (1 + byte % 3 + fraction)
    step = max(1, int(rows * fraction))
    # Only a step that is coprime to the rows reaches each of them once.
    while math.gcd(step, rows) != 1:
        step += 1
    return Shuffle(rows, step, int.from_bytes(digest[16:24], "big") % rows)

"""Draws points of a low-discrepancy sequence, as sizes of operators: every beginning of the sequence covers them
evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A bound on operators: elements of a tensor, and multiplications of a product."""

    elements: int
    multiplications: int


# For GPUs 256 M elements, and products of 2 ms on a current GPU's slowest arithmetic; for CPUs operators of 1 ms.
GPU_SCALE = Scale(elements=1 << 28, multiplications=1 << 37)
CPU_SCALE = Scale(elements=1 << 16, multiplications=1 << 21)

# Steps of the sequence in each dimension: fractions of square roots of primes, whose multiples are spread evenly.
_STEPS = tuple(math.sqrt(prime) % 1 for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37))


class Draw:
    """A point of the sequence: each call consumes the next of its coordinates."""

    def __init__(self, number: int, scale: Scale) -> None:
        self.scale = scale
        self._number, self._next = number, 0

    def share(self) -> float:
        """Return a number from 0 to 1."""
        step = _STEPS[self._next % len(_STEPS)] * (1 + self._next // len(_STEPS))
        self._next += 1
        return (0.5 + self._number * step) % 1

    def one_of(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[int(self.share() * len(choices))]

    def size(self, least: int, most: int) -> int:
        """Return a size with an evenly drawn logarithm; large sizes are multiples of an eighth of a power of 2."""
        size = float(least * (most / least) ** self.share())
        step = 1 << max(0, int(math.log2(max(size, 1))) - 3)
        return max(least, min(most, round(size / step) * step))

    def elements(self, least: int = 1 << 10, most: int = 1 << 28) -> int:
        """Return a number of elements within the scale."""
        most = min(most, self.scale.elements)
        return self.size(min(least, most), most)

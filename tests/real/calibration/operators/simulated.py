"""A GPU whose times are known: the laws with other figures, and some noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from random import Random

from real.calibration.operators.timers import Maker, RepeatTimes
from scenarios.config.gpu import Gpu
from scenarios.seam.operations.operation import Operation
from sim.operators.laws import seconds

_REPEATS, _NOISE = 3, 0.01


def another(gpu: Gpu) -> Gpu:
    """Return a GPU that is not as its data sheet: slower memory and arithmetic, fewer multiprocessors, no tables."""
    assert gpu.l2_bytes_per_s is not None
    return dataclasses.replace(
        gpu,
        kernel_tables=(),
        memory_bytes_per_s=0.8 * gpu.memory_bytes_per_s,
        l2_bytes_per_s=0.7 * gpu.l2_bytes_per_s,
        multiprocessors=110,
        flops_per_s={dtype: 0.75 * rate for dtype, rate in gpu.flops_per_s.items()},
    )


class LawTimer:
    """A timer of that GPU; it runs nothing."""

    is_cold = True

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._random = gpu, Random(0)
        self.asked: list[Operation] = []

    def take(self, batch: Sequence[tuple[Operation, Maker]]) -> list[RepeatTimes]:
        """See `Timer`."""
        self.asked += [operation for operation, _ in batch]
        return [RepeatTimes(self.times_us(operation)) for operation, _ in batch]

    def times_us(self, operation: Operation) -> tuple[float, ...]:
        """Return what the repeats of an operator take."""
        alone_us = 1e6 * seconds(operation, self._gpu, is_cold=True)
        return tuple(alone_us * self._random.gauss(1, _NOISE) for _ in range(_REPEATS))

"""What a recording of probes says beside the kernels' spans."""

from __future__ import annotations

import dataclasses
from typing import Any

from real.calibration.kernels.fit import Reached, TimedKernel, reached_rates
from real.calibration.kernels.probes import cpu_here
from real.machine import cpu_name
from tests.small import CORE


def time(kind: str, label: str, launches: int = 1, **changes: Any) -> TimedKernel:
    blank = TimedKernel(kind=kind, label=label, dtype="float32", launches=launches, flops=0, moved_bytes=1, median_s=1)
    return dataclasses.replace(blank, **changes)


def test_reached_rates_are_the_best_product_and_the_best_uncached_stream() -> None:
    kernels = [
        time("gemm", "a", flops=1e12, median_s=0.2),
        time("gemm", "b", flops=1e12, median_s=0.25),
        time("gemm", "c", flops=1e12, median_s=0.05, dtype="bfloat16"),
        time("permute", "cached", moved_bytes=1e6, median_s=1e-7),
        time("permute", "large", moved_bytes=1e9, median_s=2e-3),
        time("optimizer", "larger", moved_bytes=2e9, median_s=5e-3),
        time("embedding_lookup", "ids twice", moved_bytes=2e9, median_s=1e-4),
    ]
    assert reached_rates(kernels) == [
        Reached(what="memory", per_s=1e9 / 2e-3),
        Reached(what="float32", per_s=1e12 / 0.2),
        Reached(what="bfloat16", per_s=1e12 / 0.05),
    ]


def test_a_core_has_its_processors_name() -> None:
    assert cpu_here(CORE) == dataclasses.replace(CORE, name=f"a core of {cpu_name()}")

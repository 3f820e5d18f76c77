"""GPUs and comparisons for tests of operators' laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from scenarios.config.gpu import Gpu
from scenarios.config.load import load_profile

# What a measured operator's row holds beside its kernel: a pair of events around it (1.3 us where no kernel runs
# between them) and the start of a kernel behind an event. The H200's rows, caches flushed before each.
MEASURING_US = 3.0
# What lies between two kernels of one operator, in such rows: measured less the sum of kernels, three backward passes
# of fbgemm with 24 kernels each.
GAP_US = 1.1
# What rows of the A100 PCIe and V100 PCIe hold beside their kernels (elementwise, by its offset at 0 bytes).
FP32_MEASURING_US = 17.0


def gpu(profile: str, **figures: Any) -> Gpu:
    return replace(load_profile(profile).host.gpu, **figures)


H200 = gpu("hgx_h200")
A100_PCIE = gpu("a100_pcie_40gb")
V100_PCIE = gpu("dgx1_v100", memory_bytes_per_s=897e9, flops_per_s={"float32": 14e12})
A100_SXM, H100 = gpu("dgx_a100"), gpu("dgx_h100")
Law = Callable[[Any, Gpu], float]
EVERY = (H200, A100_PCIE, V100_PCIE, A100_SXM, H100, gpu("p6_b200"), gpu("l40s_pcie"))
on_every_gpu = pytest.mark.parametrize("on", EVERY, ids=lambda on: on.name)


def errors(law: Law, rows: Iterable[tuple[Any, float]], on: Gpu, beside_us: float = 0.0) -> list[float]:
    """Return each row's predicted over measured time, minus 1."""
    return [(law(call, on) * 1e6 + beside_us) / measured - 1 for call, measured in rows]


def mean_error(*args: Any, **kwargs: Any) -> float:
    return fmean(abs(each) for each in errors(*args, **kwargs))

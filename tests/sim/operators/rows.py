"""GPUs and comparisons for tests of operators' laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from scenarios.config.gpu import Gpu
from scenarios.config.load import load_profile
from sim.operators.measuring import EVENTS_S, GAP_S, NEUSIGHT_S

# What rows of the H200 hold beside a kernel, what lies between two kernels, and what NeuSight's labels hold, us.
MEASURING_US, GAP_US, FP32_MEASURING_US = (seconds * 1e6 for seconds in (EVENTS_S, GAP_S, NEUSIGHT_S))


def gpu(profile: str, **figures: Any) -> Gpu:
    return replace(load_profile(profile).host.gpu, **figures)


H200 = gpu("hgx_h200")
A100_PCIE = gpu("a100_pcie_40gb")
V100_PCIE = gpu("v100_pcie")
A100_SXM, H100 = gpu("dgx_a100"), gpu("dgx_h100")
Law = Callable[[Any, Gpu], float]
EVERY = (H200, A100_PCIE, V100_PCIE, A100_SXM, H100, gpu("p6_b200"), gpu("l40s_pcie"))
on_every_gpu = pytest.mark.parametrize("on", EVERY, ids=lambda on: on.name)


def errors(law: Law, rows: Iterable[tuple[Any, float]], on: Gpu, beside_us: float = 0.0) -> list[float]:
    """Return each row's predicted over measured time, minus 1."""
    return [(law(call, on) * 1e6 + beside_us) / measured - 1 for call, measured in rows]


def mean_error(*args: Any, **kwargs: Any) -> float:
    return fmean(abs(each) for each in errors(*args, **kwargs))

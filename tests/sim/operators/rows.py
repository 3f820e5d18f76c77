"""GPUs and comparisons for tests of operators' laws."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from scenarios.config.gpu import Gpu
from scenarios.config.load import load_profile
from sim.operators.tables.__main__ import SYSTEMS

DATA = Path(__file__).parents[2] / "data"
PUBLISHED = DATA / "published" / "kernels"


@cache
def gpu_of(profile: str) -> Gpu:
    return load_profile(profile).host.gpu


def system(name: str) -> Gpu:
    gpu = gpu_of(SYSTEMS[name])
    return replace(gpu, compute_capability=103) if name == "gb300" else gpu


H200, A100_SXM, H100 = map(gpu_of, ("hgx_h200", "dgx_a100", "dgx_h100"))
EVERY = (H200, A100_SXM, H100, *map(gpu_of, ("a100_pcie_40gb", "v100_pcie", "p6_b200", "l40s_pcie")))
on_every_gpu = pytest.mark.parametrize("on", EVERY, ids=lambda on: on.name)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def mean_error(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the mean of |predicted / measured - 1|."""
    return fmean(abs(predicted / measured - 1) for predicted, measured in pairs)

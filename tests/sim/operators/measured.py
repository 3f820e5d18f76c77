"""Reads measured rows of operators and what laws say of them."""

from __future__ import annotations

import csv
import dataclasses
import statistics
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from scenarios.config.gpu import Gpu
from scenarios.config.load import load_profile

_FOLDER = Path(__file__).parents[2] / "data" / "kernels"
# The wheel's systems, in the project's profiles.
SYSTEMS = {
    "a100_sxm": "dgx_a100",
    "h100_sxm": "dgx_h100",
    "h200_sxm": "hgx_h200",
    "b200_sxm": "p6_b200",
    "gb200": "gb200_nvl72",
    "gb300": "gb200_nvl72",
    "b300_sxm": "hgx_b300",
    "l40s": "l40s_pcie",
}


def rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def gpu_of(profile: str) -> Gpu:
    return load_profile(profile).host.gpu


def system(name: str) -> Gpu:
    gpu = gpu_of(SYSTEMS[name])
    return dataclasses.replace(gpu, compute_capability=103) if name == "gb300" else gpu


def mean_error(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the mean of |predicted / measured - 1|."""
    return statistics.fmean(abs(predicted / measured - 1) for predicted, measured in pairs)

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
from sim.operators.tables.__main__ import SYSTEMS

_FOLDER = Path(__file__).parents[2] / "data" / "kernels"


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

"""Probes of a core's kernels as a program, and the rates that their recording shows."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from real.calibration.kernels.fit import TimedKernel
from real.calibration.kernels.probes import computing_ranks, probe_kernels
from real.calibration.kernels.workloads import HOST
from real.machine import cpu_name
from scenarios.config.gpu import Gpu
from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

# Kinds of kernels that show the memory's rate: they touch each byte once. Only those count that move at least this
# share
# of the largest one's bytes, which no cache holds.
_STREAMING, _LARGE = ("permute", "elementwise", "reduction", "optimizer"), 0.25


class DeviceProbes(Program):
    """A program of the probes of a CPU's kernels; a scenario gives the cluster, and its steps the rounds."""

    def __init__(self, scenario: Scenario) -> None:
        self._computing, self._rounds = computing_ranks(scenario.cluster), scenario.run.steps

    async def __call__(self, rank: Rank) -> None:
        await probe_kernels(rank, self._computing, rounds=self._rounds, sizes=HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A rate of the best kernel: `what` is "memory", in bytes/s, or the dtype of products, in FLOP/s."""

    what: str
    per_s: float


def reached_rates(timed: Sequence[TimedKernel]) -> list[Reached]:
    """Return the memory's rate, and the rate of products of each dtype."""
    streams = [each for each in timed if each.kind in _STREAMING]
    large_bytes = _LARGE * max(each.moved_bytes for each in streams)
    moved = max(each.moved_bytes / each.median_s for each in streams if each.moved_bytes >= large_bytes)
    products: dict[str, float] = defaultdict(float)
    for each in timed:
        if each.kind == "gemm":
            products[each.dtype] = max(products[each.dtype], each.flops / each.median_s)
    return [Reached(what=what, per_s=rate) for what, rate in {"memory": moved, **products}.items()]


def cpu_here(like: Gpu) -> Gpu:
    """Return `like` under the name of this machine's processor."""
    return dataclasses.replace(like, name=f"a core of {cpu_name()}")

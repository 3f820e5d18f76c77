"""Measures with more ranks than cores how often a spinning thread delays a message.

The simulator knows how often a spin could delay a message; the share of these in which it does shows only in a crowd.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from statistics import mean, median, quantiles
from typing import Any

import torch
from torch import Tensor

from real.calibration.network.fit import whole_s
from real.calibration.network.probes import others_s_so_far
from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Metric, Span

WARM_UP = 5
REPEATS = 100
# Repetitions of each call in a simulation, which takes seconds: enough for a mean.
PLAYED = 30
_BYTES = 1 << 10
# Calls with a buffer, a share of it and a buffer for all shares.
_CALLS: Mapping[str, Callable[[Rank, Tensor, Tensor, Tensor], Work[Any]]] = {
    "barrier": lambda rank, *_: rank.barrier(),
    "all_reduce": lambda rank, whole, *_: rank.all_reduce(whole),
    "all_gather": lambda rank, _, share, gathered: rank.all_gather_into_tensor(gathered, share),
    "broadcast": lambda rank, whole, *_: rank.broadcast(whole, 0),
}
# About the longest that a thread spins: until the system's tick takes its core. Of 1,704 spins of more than 30 us that
# one rank of three on 2 cores had in 4,200 short calls, ten lasted longer.
_SPIN_NS = 4_000_000
_SPINS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22)
# Steps of work: between their calls, ranks compute for these times.
WORKED = 40
_WORK_S = (0.001, 0.004, 0.002)
_WORK = "work"
# Pairs of ranks call barriers, all at once, while no core is idle; a block's core time is measured.
BLOCKS, BARRIERS = 60, 20
_TOGETHER = "barrier_cpu_s"

Typical = Mapping[str, float]
Play = Callable[[Cluster], Typical]


class Crowd(Program):
    """A program of each call in turn, each repetition a step after a barrier; then steps of work and calls."""

    def __init__(self, scenario: Scenario, repeats: int = REPEATS) -> None:
        self._called = (WARM_UP + repeats) * len(_CALLS)
        gpu = scenario.cluster.host.gpu
        per_s = gpu.flops_per_s["float32"] * gpu.efficiency.get("default", 1.0)
        self._works = [(Kernel(kind=_WORK, flops=work_s * per_s, launches=0), work_s) for work_s in _WORK_S]

    async def __call__(self, rank: Rank) -> None:
        whole = torch.zeros(_BYTES // 4, device=rank.device)
        pairs = [rank.new_group([first, first + 1]) for first in range(0, rank.world_size - 1, 2)]
        share = torch.zeros(_BYTES // 4 // rank.world_size, device=rank.device)
        gathered = torch.zeros(share.numel() * rank.world_size, device=rank.device)
        for index, call in zip(range(self._called), cycle(_CALLS.values()), strict=False):
            await rank.barrier(label="together")
            with rank.step(index):
                await call(rank, whole, share, gathered)
        for index in range(self._called, self._called + WARM_UP + WORKED):
            await rank.barrier(label="together")
            with rank.step(index):
                for kernel, work_s in self._works:
                    await rank.compute(kernel, _work, 0.0 if rank.device.type == "meta" else work_s, label=_WORK)
                    await rank.all_reduce(whole)
        if rank.device.type != "meta":  # a simulation knows the barrier's core time
            await self._barriers(rank, pairs)

    async def _barriers(self, rank: Rank, pairs: Sequence[Group]) -> None:
        (pair,) = [pair for pair in pairs if rank.rank in pair.ranks] or [rank.world]
        for _ in range(BLOCKS):
            before_s = others_s_so_far()
            for _ in range(BARRIERS):
                await rank.barrier(pair)
            rank.record(_TOGETHER, (others_s_so_far() - before_s) / BARRIERS)


def barrier_s(metrics: Iterable[Metric]) -> float:
    """Return the core seconds of a barrier of two ranks on one of them, of gloo's threads alone, on busy cores.

    The lower quartile of the blocks counts: time beyond it was spent on spinning.
    """
    return quantiles((metric.value for metric in metrics if metric.name == _TOGETHER), method="inclusive")[0]


def _work(work_s: float) -> None:
    """Keep a core busy for `work_s` of its own time, however long that takes."""
    # thread_time stands still while another thread has the core.
    until_s = time.thread_time() + work_s
    while time.thread_time() < until_s:
        pass


def typical(spans: Iterable[Span], repeats: int = REPEATS) -> Typical:
    """Return seconds from the first rank's start to the last rank's end: mean of each call, median of steps of work."""
    steps: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind == "step":
            steps[span.step].append(span)
    called = (WARM_UP + repeats) * len(_CALLS)
    times, names = defaultdict[str, list[float]](list), tuple(_CALLS)
    for step, own in steps.items():
        if WARM_UP * len(_CALLS) <= step < called:
            times[names[step % len(names)]].append(whole_s(own))
        elif step >= called + WARM_UP:
            times[_WORK].append(whole_s(own))
    return {name: (median if name == _WORK else mean)(times_s) for name, times_s in times.items()}


def fit(cluster: Cluster, measured: Typical, play: Play) -> Cluster:
    """Return the cluster with the share of spins whose simulated times are nearest to the measured times, by ratio.

    Steps of work and all calls together count. A median of steps is known about three times as well as a mean of calls,
    a few of which are delayed for long. The cluster's other parameters must be known.
    """

    def off(candidate: Cluster) -> float:
        played = play(candidate)
        ratios = {name: math.log(played[name] / times_s) for name, times_s in measured.items()}
        work = ratios.pop(_WORK)
        return (3 * work) ** 2 + mean(ratios.values()) ** 2

    return min((with_spins(cluster, share) for share in _SPINS), key=off)


def with_spins(cluster: Cluster, share: float) -> Cluster:
    """Return the cluster with this share of posts delayed."""
    assert cluster.tcp is not None
    tcp = dataclasses.replace(cluster.tcp, spin_ns=_SPIN_NS if share else 0, spin_share=share)
    return dataclasses.replace(cluster, tcp=tcp)

"""Runs the kernel probes on a rank (`workloads` lists them; `fit` evaluates their times).

All workloads run in turn, round after round, from the quickest to the slowest, so that each finds the caches as a
program's kernels do: full of data of other kernels of its size. Ranks begin each workload together, so that contention
for the machine's memory is part of the times.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from real.calibration.kernels.blocks import load_autograd
from real.calibration.kernels.workloads import HOST, ProbedWorkload, Sizes, workloads
from real.machine import cpu_name
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Done, Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank

T = TypeVar("T")

# First rounds that are dropped: numba compiles, and PowerSGD does not compress before the third.
WARM_UP = 4
# Rounds of one launch. A kernel's time changes by 15 % in another process, or a minute later: `calibrate` launches
# several.
ROUNDS = 9
# Time limit of a launch in s, and the least number of rounds.
_LIMIT_S, _ENOUGH = 20.0, WARM_UP + 3


async def probe_kernels(rank: Rank, computing: Collection[int], *, rounds: int, sizes: Sizes) -> None:
    """Run up to `WARM_UP + rounds` rounds, each a step; all ranks call this, the `computing` ranks compute.

    After the time limit, which includes drawing inputs, no further round begins once there are enough rounds for a
    median. Use no more computing ranks than cores: ranks that wait for each other's cores would show that wait in
    kernels' times.
    """
    active = sorted(computing)
    group = rank.new_group(active)
    drawn: list[ProbedWorkload] = []
    began_s = time.monotonic()
    if rank.rank in active:
        load_autograd(rank.device)
        drawn = workloads(rank.device, rank.control_device, sizes)
    for step in range(WARM_UP + rounds):
        spent_s = torch.tensor([time.monotonic() - began_s], device=rank.control_device)
        await rank.all_reduce(spent_s, ReduceOp.MAX, label="time spent")
        if step >= _ENOUGH and float(spent_s) > _LIMIT_S:
            break
        taken_s = []
        with rank.step(step):
            for workload in drawn:
                await rank.barrier(group, label="begin")
                begun_s = time.monotonic()
                await workload.play(cast(Rank, SingleRank(rank, workload.name)))
                taken_s.append(time.monotonic() - begun_s)
        if drawn and step == 1:  # numba has compiled in step 0
            drawn = await _in_order_of_time(rank, group, drawn, taken_s)


async def _in_order_of_time(
    rank: Rank, group: Group, drawn: list[ProbedWorkload], taken_s: list[float]
) -> list[ProbedWorkload]:
    """Return the workloads in the order of the group's first rank, quickest first: all ranks need one order."""
    order = torch.tensor(sorted(range(len(drawn)), key=taken_s.__getitem__), device=rank.control_device)
    await rank.broadcast(order, group.ranks[0], group, label="order")
    return [drawn[index] for index in order.tolist()]


def computing_ranks(cluster: Cluster) -> list[int]:
    """Return the ranks that have a core each."""
    gpus, cores = cluster.host.gpus, cluster.host.cores
    if cluster.hosts_share_cores:
        return list(range(min(cluster.world_size, cores)))
    return [rank for rank in range(cluster.world_size) if rank % gpus < cores]


class SingleRank:
    """A rank in a world of its own, which labels computation and reduces nothing.

    It has the verbs of `Rank` that the workloads need; a label ends with the number of launches, which spans lack.
    """

    world_size = 1

    def __init__(self, rank: Rank, name: str) -> None:
        self._rank, self._name = rank, name
        self.rank, self.device, self.control_device = rank.rank, rank.device, rank.control_device

    def for_role(self, role: str) -> SingleRank:
        """Give the same rank: nobody asks what probes are for."""
        return self

    def compute(
        self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "", role: str = ""
    ) -> Work[T]:
        """Compute on the true rank, with a probe's label."""
        return self._rank.compute(kernel, function, *arguments, label=probe_label(self._name, label, kernel.launches))

    def all_reduce(
        self,
        tensor: Tensor,
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Reduce over a group of one: nothing moves."""
        return Done(tensor)


def probe_label(workload: str, label: str, launches: int) -> str:
    """Return the label of a probed kernel's span."""
    return f"probe {workload}: {label} x{launches}"


def launches_in(label: str) -> int | None:
    """Return the launches in a `probe_label`; None for other labels."""
    launches = label.rpartition(" x")[2]
    return int(launches) if label.startswith("probe ") and launches.isdecimal() else None


class DeviceProbes(Program):
    """A program of the probes of a CPU's kernels; a scenario gives the cluster, and its steps the rounds."""

    def __init__(self, scenario: Scenario) -> None:
        self._computing, self._rounds = computing_ranks(scenario.cluster), scenario.run.steps

    async def __call__(self, rank: Rank) -> None:
        await probe_kernels(rank, self._computing, rounds=self._rounds, sizes=HOST)


def cpu_here(like: Gpu) -> Gpu:
    """Return `like` under the name of this machine's processor."""
    return dataclasses.replace(like, name=f"a core of {cpu_name()}")

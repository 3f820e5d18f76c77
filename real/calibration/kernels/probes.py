"""Plays the kernel probes on a rank: which kernels they are is `workloads`, what follows from their times `kernel_fit`.

All are played in turn, round after round, from the quickest to the slowest, so that each finds the caches as a
program's kernels do: full of what others of its size left. Ranks begin each together, so that what they share of the
machine's memory is in the figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from real.calibration.kernels.blocks import load_autograd
from real.calibration.kernels.workloads import Sizes, Workload, workloads
from scenarios.config.hardware import Cluster
from scenarios.seam.backend import Done, Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank

T = TypeVar("T")

# Of each kernel these first rounds are dropped: numba compiles, and PowerSGD does not compress before the third.
WARM_UP = 4
# Of one launch: a kernel takes 15 % more or less in another process, or a minute later. `calibrate` makes several.
ROUNDS = 9
# What a launch may take, and how many rounds it has at least.
_LIMIT_S, _ENOUGH = 20.0, WARM_UP + 3


async def probe_kernels(rank: Rank, computing: Collection[int], *, rounds: int, sizes: Sizes) -> None:
    """Up to `WARM_UP + rounds` rounds, each a step; all ranks call this, those of `computing` compute.

    After some time, drawing inputs included, no further round begins once there are enough of them for a median. More
    ranks at once than there are cores would wait for each other, and their kernels' times would contain it.
    """
    active = sorted(computing)
    group = rank.new_group(active)
    made: list[Workload] = []
    began_s = time.monotonic()
    if rank.rank in active:
        load_autograd(rank.device)
        made = workloads(rank.device, rank.control_device, sizes)
    for step in range(WARM_UP + rounds):
        spent_s = torch.tensor([time.monotonic() - began_s], device=rank.control_device)
        await rank.all_reduce(spent_s, ReduceOp.MAX, label="time spent")
        if step >= _ENOUGH and float(spent_s) > _LIMIT_S:
            break
        taken_s = []
        with rank.step(step):
            for workload in made:
                await rank.barrier(group, label="begin")
                begun_s = time.monotonic()
                await workload.play(cast(Rank, Alone(rank, workload.name)))
                taken_s.append(time.monotonic() - begun_s)
        if made and step == 1:  # numba has compiled in the first
            made = await _in_order_of_time(rank, group, made, taken_s)


async def _in_order_of_time(rank: Rank, group: Group, made: list[Workload], taken_s: list[float]) -> list[Workload]:
    """The same on all: that of the group's first rank."""
    order = torch.tensor(sorted(range(len(made)), key=taken_s.__getitem__), device=rank.control_device)
    await rank.broadcast(order, group.ranks[0], group, label="order")
    return [made[index] for index in order.tolist()]


def computing_ranks(cluster: Cluster) -> list[int]:
    """As many ranks as have a core each."""
    gpus, cores = cluster.host.gpus, cluster.host.cores
    if cluster.hosts_share_cores:
        return list(range(min(cluster.world_size, cores)))
    return [rank for rank in range(cluster.world_size) if rank % gpus < cores]


class Alone:
    """A rank in a world of its own: what the programs' functions compute is labelled, what they reduce is reduced.

    It has the verbs that the workloads need of a `Rank`; a label ends with the number of launches, which spans lack.
    """

    world_size = 1

    def __init__(self, rank: Rank, name: str) -> None:
        self._rank, self._name = rank, name
        self.rank, self.device, self.control_device = rank.rank, rank.device, rank.control_device

    def for_role(self, role: str) -> Alone:
        """Give the same rank: nobody asks what probes are for."""
        return self

    def compute(
        self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "", role: str = ""
    ) -> Work[T]:
        """On the true rank."""
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
    """What the span of a probed kernel is called."""
    return f"probe {workload}: {label} x{launches}"


def launches_in(label: str) -> int | None:
    """The launches that a `probe_label` tells; None for other labels."""
    launches = label.rpartition(" x")[2]
    return int(launches) if label.startswith("probe ") and launches.isdecimal() else None

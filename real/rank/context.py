"""What the streams of one rank share: its place, its device, its groups and its journal; the verbs are in `rank`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist

from real.launch.job import Check
from real.rank.agreement import GroupAgreement, PairAgreement
from real.rank.call_checker import CHECKING, Clerk, Held
from real.rank.cuda import Anchors, CudaLane
from real.rank.group_agreement import SetUps
from real.rank.journal import Journal
from real.rank.lanes import CpuLane, Lane
from real.rank.libraries import Gloo, Joined, Nccl, Wire, transport
from scenarios.config.hardware import Cluster
from scenarios.seam.calls import Call
from scenarios.seam.errors import ScenarioError
from scenarios.seam.rank import Group


class Observer(Protocol):
    """Who is told of a rank's steps; called between operations, never inside one."""

    def step_begins(self, index: int) -> None: ...
    def step_ends(self) -> None: ...


# How many calls of one group each library serves at a time.
LANES = {"gloo": Gloo.lanes, "nccl": Nccl.lanes}
# Hardware queues: 1 to 32, by default 8 (CUDA C++ Programming Guide, "CUDA Environment Variables"). Streams that share
# one wait for each other; a rank has several of its own, and one for each group's communicator.
CONNECTIONS = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


class Library:
    """gloo on CPU tensors, or NCCL on CUDA tensors: what belongs together, chosen once from the scenario."""

    def __init__(self, name: str, device_index: int) -> None:
        """`device_index` is the CUDA device of this process; it becomes the current one.

        Raises:
            ScenarioError: NCCL is asked for, and this machine has no such device.
        """
        self.wire: Wire
        self.new_lane: Callable[[bool], Lane]
        self.between_steps: Callable[[], None]
        if name == "nccl":
            self.device = _cuda_device(device_index)
            gpu = _Gpu(self.device)
            self.wire, self.new_lane, self.between_steps = Nccl(self.device), gpu.new_lane, gpu.between_steps
        else:
            self.device = torch.device("cpu")
            torch.set_num_threads(1)
            self.wire, self.new_lane, self.between_steps = Gloo(), lambda is_main: CpuLane(), _nothing


class _Gpu:
    """The lanes of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._anchors, self._lanes = device, Anchors(device), list[CudaLane]()

    def new_lane(self, is_main: bool) -> Lane:
        """A stream of it."""
        lane = CudaLane(self._device, self._anchors, is_main=is_main)
        self._lanes.append(lane)
        return lane

    def between_steps(self) -> None:
        """What takes the host some time, and is not to be part of a step."""
        self._anchors.renew()
        for lane in self._lanes:
            lane.let_go()


def _cuda_device(index: int) -> torch.device:
    for name, value in CONNECTIONS.items():
        os.environ.setdefault(name, value)  # the driver reads it when it begins
    count = torch.cuda.device_count()
    if count == 0:
        raise ScenarioError("library = 'nccl': expected CUDA devices, this machine has none; 'gloo' needs none")
    # Under `srun --gpus-per-task=1` a process sees its own GPU alone, as number 0.
    if 1 < count <= index:
        raise ScenarioError(
            f"library = 'nccl': expected at most {count} ranks on this machine, one for each CUDA device"
        )
    device = torch.device("cuda", 0 if count == 1 else index)
    torch.cuda.set_device(device)
    return device


def _nothing() -> None:
    return


class Seat:
    """One rank's place in a world that has been joined."""

    def __init__(
        self,
        journal: Journal,
        cluster: Cluster,
        library: Library,
        observer: Observer,
        set_ups: SetUps,
        check: Check = "never",
    ) -> None:
        """`check` counts for what the calling thread issues from now on; see `Job`."""
        self._check = check
        CHECKING.set(check != "never")
        self.journal = journal
        self.rank = journal.rank
        self.world_size = cluster.world_size
        self.hosts, self.local_world_size = cluster.hosts, cluster.host.gpus
        self.device = library.device
        self.wire = library.wire
        self.observer = observer
        self.set_ups = set_ups
        self.streams = ["main"]
        self._library = library
        self._lanes: list[Lane] = []
        self._groups: dict[str, Group] = {}
        self._clerks: dict[str, Clerk] = {}
        self._refused: list[Held] = []

    def new_lane(self, *, is_main: bool) -> Lane:
        """What a stream is on this rank's device."""
        lane = self._library.new_lane(is_main)
        self._lanes.append(lane)
        return lane

    def settle(self) -> None:
        """Wait until the device has done all that was launched."""
        for lane in self._lanes:
            lane.settle()

    def join(self, name: str, ranks: tuple[int, ...]) -> Group:
        """A group of global ranks; every rank of the world calls this in the same order, member or not."""
        group = Group(name, ranks)
        with transport(self.rank, f"new_group '{name}'"):
            handle = dist.new_group(sorted(ranks))
        self._groups[name] = group
        if self.rank in group:
            order = tuple(ranks.index(rank) for rank in sorted(ranks))
            joined = Joined(group=group, handle=handle, order=order)
            with transport(self.rank, f"new_group '{name}'"):
                self.wire.open(joined)
            self._clerks[name] = Clerk(f"rank {self.rank} clerk of {name}", joined, GroupAgreement(joined))
        return group

    def knows(self, group: Group) -> bool:
        """Whether this rank has made that group, be it a member or not."""
        known = self._groups.get(group.name)
        return known is group or known == group

    def clerk(self, group: Group) -> Clerk:
        """Of a group that this rank is in."""
        return self._clerks[group.name]

    def pair_clerk(self, group: Group, pair: Group) -> Clerk:
        """Of the messages that the two of a pair in that group, source and target, exchange."""
        clerk = self._clerks.get(pair.name)
        if clerk is None:
            joined = self._clerks[group.name].joined
            agreement = PairAgreement(joined, self.rank, pair, is_on=self._check != "never")
            clerk = self._clerks[pair.name] = Clerk(f"rank {self.rank} clerk of {pair.name}", joined, agreement)
        return clerk

    def refuse(self, clerk: Clerk, call: Call) -> None:
        """A call whose arguments were refused takes its place in its order, if calls are checked."""
        if CHECKING.get() or clerk.is_needed:
            self._refused.append(clerk.hold(Held(call, None, is_checked=CHECKING.get())))

    def tell_refused(self, within_s: float) -> None:
        """Wait until the other members have heard of every call that was refused, but not longer than that."""
        until_s = time.monotonic() + within_s
        for held in self._refused:
            held.is_told(max(0.0, until_s - time.monotonic()))

    def step_ends(self) -> None:
        """A training step is over; under "first", it was the last whose calls are checked."""
        self._library.between_steps()
        if self._check == "first":
            CHECKING.set(False)

    def leave(self) -> None:
        """The program has ended on all ranks."""
        for clerk in self._clerks.values():
            clerk.dismiss()

"""A backend for a user's own training: no scenario, no recording, one process group."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from real.libraries import library_of
from real.libraries.errors import transport
from real.libraries.moves import Joined
from real.rank.drive import play
from scenarios.config.interconnect import default_library
from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Done, Work
from scenarios.seam.calls import Call
from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import PricedLater
from scenarios.seam.roles import Purpose

T = TypeVar("T")


class DdpBackend:
    """A `Backend` that executes every verb at once, on the thread and the stream of its caller."""

    stream = "main"

    def __init__(self, handle: dist.ProcessGroup, device: torch.device) -> None:
        """Average over the process group `handle`; gradients are on `device`."""
        self.rank, self.world_size, self.local_world_size = handle.rank(), handle.size(), handle.size()
        self.device = self.control_device = device
        ranks = tuple(range(self.world_size))
        self.world = self.intra = Group("world", ranks)
        self.cross = Group("cross", (self.rank,))
        self._starts = library_of(default_library(device.type))(device).starts
        self._joined = Joined(group=self.world, handle=handle, order=ranks)

    @property
    def now_ns(self) -> int:
        """Host time, in ns."""
        return time.perf_counter_ns()

    def host_work(self, work: HostWork) -> int:
        """Do nothing: the real host does the work itself."""
        return self.now_ns

    def knows(self, group: Group) -> bool:
        """Return whether a group is the training's process group, the only one here."""
        return group == self.world

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        """Execute a collective and wait for it.

        Raises:
            RankLostError: the library failed, most likely because another rank has ended.
        """
        with transport(self.rank, call.label or call.op):
            sent = self._starts[call.op](self._joined, call, issue)
            sent.work.wait()
            sent.end()
        return Done(issue.output)

    def refuse(self, call: Call, group: Group) -> None:
        """Do nothing: the mistake ends this rank's training, which the other ranks see."""

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: Sequence[object], purpose: Purpose
    ) -> Work[T]:
        """Run a function at once; its cost is not recorded."""
        return Done(function(*arguments))

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Run a coroutine to its end."""
        return Done(play(coroutine, self.rank))

    def after(self, work: Work[Any]) -> None:
        """Do nothing: every call has completed when it returns."""

    async def synchronize(self, work: Work[T]) -> T:
        """Return the value of `work` once the GPU's current stream is empty."""
        value = await work
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return value

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """Do nothing: steps are not recorded."""
        yield

    def record(self, name: str, value: Tensor | float) -> None:
        """Do nothing: metrics are not recorded."""

    def new_group(self, name: str, ranks: object) -> Group:
        """Raise CollectiveError: the training's process group is the only one."""
        raise CollectiveError(f"rank {self.rank}: new_group: expected to use the process group of the training alone")

    def open_stream(self, name: str) -> DdpBackend:
        """Raise ProgramError: the caller's stream is the only one."""
        raise ProgramError(f"rank {self.rank}: stream: expected to use the stream of the hook alone")


def twin_of(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """Create a second group of the same ranks, backend and time-out; all ranks call this function in the same order.

    A reduction concurrent with the backward pass needs a group of its own: on the user's group its collectives would
    interleave with the user's.
    """
    is_world = group.size() == dist.get_world_size()
    twin = dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._get_backend(device).options._timeout,
        backend=dist.get_backend_config(group),
        # Ranks outside a smaller group do not call this; a global counter in the group's name would then differ.
        use_local_synchronization=not is_world,
    )
    assert isinstance(twin, dist.ProcessGroup), "a rank reduces over a group that it is in"
    return twin

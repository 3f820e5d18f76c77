"""A rank in a user's own training: no scenario, no recording, one process group of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
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

T = TypeVar("T")


class DdpBackend:
    """A `Backend` that plays every verb at once, on the thread and the stream of its caller."""

    stream = "main"

    def __init__(self, handle: dist.ProcessGroup, device: torch.device) -> None:
        """`handle`: over which gradients are averaged; they are on `device`."""
        self.rank, self.world_size, self.local_world_size = handle.rank(), handle.size(), handle.size()
        self.device = self.control_device = device
        ranks = tuple(range(self.world_size))
        self.world = self.intra = Group("world", ranks)
        self.cross = Group("cross", (self.rank,))
        self._starts = library_of(default_library(device.type))(device).starts
        self._joined = Joined(group=self.world, handle=handle, order=ranks)

    @property
    def now_ns(self) -> int:
        """See `Backend.now_ns`."""
        return time.perf_counter_ns()

    def host_work(self, work: HostWork) -> int:
        """See `Backend.host_work`: a real host does it anyway."""
        return self.now_ns

    def knows(self, group: Group) -> bool:
        """See `Backend.knows`; there is but one."""
        return group == self.world

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        """See `Backend.issue`.

        Raises:
            RankLostError: the library failed, most likely because another rank has ended.
        """
        with transport(self.rank, call.label or call.op):
            sent = self._starts[call.op](self._joined, call, issue)
            sent.work.wait()
            if sent.finish is not None:
                sent.finish()
        return Done(issue.output)

    def refuse(self, call: Call, group: Group) -> None:
        """See `Backend.refuse`; the mistake ends this rank's training, which the others see."""

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: tuple[object, ...], role: str = ""
    ) -> Work[T]:
        """See `Backend.compute`; nobody asks what it cost."""
        return Done(function(*arguments))

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """See `Backend.spawn`."""
        return Done(play(coroutine, self.rank))

    def after(self, work: Work[Any]) -> None:
        """See `Backend.after`; all is over that was issued."""

    async def synchronize(self, work: Work[T]) -> T:
        """See `Backend.synchronize`."""
        value = await work
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return value

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """See `Backend.step`; nothing is recorded."""
        yield

    def record(self, name: str, value: Tensor | float) -> None:
        """See `Backend.record`; nothing is recorded."""

    def new_group(self, name: str, ranks: object) -> Group:
        """CollectiveError: the training's process group is the only one."""
        raise CollectiveError(f"rank {self.rank}: new_group: expected to use the process group of the training alone")

    def open_stream(self, name: str) -> DdpBackend:
        """ProgramError: the caller's stream is the only one."""
        raise ProgramError(f"rank {self.rank}: stream: expected to use the stream of the hook alone")


def twin_of(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """Make a further group of the same ranks, backend and time-out; all of them call this in the same order.

    A reduction beside the backward pass needs it: on the user's own group its collectives would cross others'.
    """
    is_world = group.size() == dist.get_world_size()
    twin = dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._get_backend(device).options._timeout,
        backend=dist.get_backend_config(group),
        # Ranks outside a smaller group do not come; without them, names rest on how many groups a rank is in.
        use_local_synchronization=not is_world,
    )
    assert isinstance(twin, dist.ProcessGroup), "a rank reduces over a group that it is in"
    return twin

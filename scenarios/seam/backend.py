"""What a world does for a rank's verbs: one `Backend` for each stream of each rank."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import PricedLater

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """Something issued. It must be awaited once before the program ends; until then its outputs are undefined."""

    def __await__(self) -> Generator[Any, Any, T_co]: ...


class Done:
    """A Work that is over: what it gives is known."""

    __slots__ = ("_value",)

    def __init__(self, value: object = None) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._value
        yield  # pragma: no cover - makes this a generator


class StepGivenUp(Exception):  # noqa: N818  (no error: it tells a step's context what it is)
    """A signal that what began as a step is none: raised in its context, it takes what was issued there out of it."""


class Backend(Protocol):
    """One stream of one rank in some world: the simulator's, torch's, DistributedDataParallel's, a test's.

    `Rank` checks arguments before it calls these. The attributes do not change.
    """

    rank: int
    world_size: int
    local_world_size: int
    device: torch.device  # where payload tensors live
    control_device: torch.device  # where tensors live whose values decide the sizes of others
    stream: str
    world: Group
    intra: Group  # the ranks of this host
    cross: Group  # the ranks of the same local rank on all hosts

    @property
    def now_ns(self) -> int:
        """The time of this rank's host, in ns since some instant."""
        ...

    def knows(self, group: Group) -> bool:
        """Whether the group is one of this run; CollectiveError if the ranks have made it differently."""
        ...

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        """Begin a collective whose members meet in `group`: the call's own, or that of a pair for send and recv."""
        ...

    def refuse(self, call: Call, group: Group) -> None:
        """Let a call with a `mistake` take its place in the order of `group`: the other members hear of it."""
        ...

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: tuple[object, ...], role: str = ""
    ) -> Work[T]:
        """Run a kernel after all that this stream was given before."""
        ...

    def host_work(self, work: HostWork) -> int:
        """Count what the host of an eager GPU program does before it launches or issues more; return, in ns, the time
        up to which it has worked then.
        """
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Run a coroutine on this stream after those before, beside the caller's."""
        ...

    def after(self, work: Work[Any]) -> None:
        """Let what this stream is given next begin after that work; the program does not wait, if the stream can."""
        ...

    def synchronize(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Await a work on the host: what is launched next is launched from then on."""
        ...

    def step(self, index: int) -> AbstractContextManager[None]:
        """Count what is issued inside to a training step, and record its span; `StepGivenUp` is the simulator's."""
        ...

    def record(self, name: str, value: Tensor | float) -> None:
        """Keep a number of this rank and step."""
        ...

    def new_group(self, name: str, ranks: object) -> Group:
        """Make a group; every rank calls this in the same order."""
        ...

    def open_stream(self, name: str) -> Backend:
        """Make a sibling with groups of its own; every rank calls this in the same order."""
        ...

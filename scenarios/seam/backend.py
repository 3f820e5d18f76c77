"""Defines `Backend`: what a world, simulated or real, does for the verbs of one stream of one rank."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import PricedLater
from scenarios.seam.roles import Purpose

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """An issued operation. The program must await it once before it ends; until then its outputs are undefined."""

    def __await__(self) -> Generator[Any, Any, T_co]: ...


class Done:
    """A Work that has ended already, with a known value."""

    __slots__ = ("_value",)

    def __init__(self, value: object = None) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._value
        yield  # pragma: no cover - makes this a generator


class StepGivenUp(Exception):  # noqa: N818  (no error: it tells a step's context what it is)
    """A signal, raised inside a step's context, that this was no step: what was issued inside is taken out of it."""


class Backend(Protocol):
    """A stream of a rank in some world: the simulator's, torch's, DistributedDataParallel's or a test's.

    `Rank` checks arguments before it calls these methods. The attributes do not change.
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
        """Time of this rank's host, in ns since some instant."""
        ...

    def knows(self, group: Group) -> bool:
        """Return whether the group belongs to this run.

        Raises:
            CollectiveError: the ranks made the group with different calls.
        """
        ...

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        """Begin a collective whose members meet in `group`: the call's own group, or the pair's for send and recv."""
        ...

    def refuse(self, call: Call, group: Group) -> None:
        """Let a call with a `mistake` take its place in the order of `group`, so that other members fail with it."""
        ...

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: Sequence[object], purpose: Purpose
    ) -> Work[T]:
        """Run a kernel after everything issued on this stream before."""
        ...

    def host_work(self, work: HostWork) -> int:
        """Count work of an eager GPU program's host before its next launch or call; return the time in ns at which the
        host will have finished it.
        """
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Run a coroutine on this stream after those spawned before, concurrently with the caller."""
        ...

    def after(self, work: Work[Any]) -> None:
        """Start the next operation of this stream only after that work; the program does not wait if the stream can."""
        ...

    def synchronize(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Await a work on the host: later launches begin after it has ended."""
        ...

    def step(self, index: int) -> AbstractContextManager[None]:
        """Assign operations issued inside to a step and record the step's span; only simulations take `StepGivenUp`."""
        ...

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a metric of this rank and step."""
        ...

    def new_group(self, name: str, ranks: object) -> Group:
        """Create a group; every rank makes the same calls in the same order."""
        ...

    def open_stream(self, name: str) -> Backend:
        """Create a backend for another stream of this rank, with its own groups; every rank makes the same calls in the
        same order.
        """
        ...

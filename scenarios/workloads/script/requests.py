"""Asks the simulated rank that a process is, one request at a time (`events`), each of which is answered."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from threading import RLock
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup, ReduceOp

from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.workloads.script.events.event import Request
from scenarios.workloads.script.events.work import Turn


class ScriptLink(Protocol):
    """A script's way to whoever plays or watches it."""

    def ask(self, request: Request) -> Any:
        """Tell of a group, a plan, the end of a step or of the script, a number (a tensor), or a failure.

        Returns:
            The name of a new group. Of a step behind which only the ends of steps are wanted, a function to call at
            each, which returns whether it was the last one.
        """
        ...

    def begin(self) -> None:
        """The group of all ranks is about to be made."""
        ...

    def store(self) -> Store:
        """Return a store in which all ranks of the script meet."""
        ...

    def known(self, tensor: Tensor) -> Tensor | None:
        """Its values, if there are any; on a GPU that is not there nobody waits for them."""
        ...

    def join(self, options: Any, backends: Mapping[str, str]) -> ProcessGroup:
        """Make this rank's side of a group; see `ScriptGroup`."""
        ...


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor's values, or with None its shape alone."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: bytes | None = None

    @staticmethod
    def of(tensor: Tensor) -> Packed:
        """With values."""
        flat = tensor.detach().contiguous().reshape(-1)
        values = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return Packed(tuple(tensor.shape), tensor.dtype, values)

    @staticmethod
    def shape_of(tensor: Tensor) -> Packed:
        """Without."""
        return Packed(tuple(tensor.shape), tensor.dtype)

    def tensor(self, device: torch.device) -> Tensor:
        """One with these values, or one of that device with any."""
        if not self.values:  # also of no elements, which are values
            return torch.empty(self.shape, dtype=self.dtype, device=device if self.values is None else "cpu")
        return torch.frombuffer(bytearray(self.values), dtype=self.dtype).view(self.shape)


class Refused(NamedTuple):
    """An answer to a call with wrong arguments, which raises in the script as torch does."""

    kind: str
    sentence: str

    @staticmethod
    def of(error: Exception) -> Refused:
        """Return what a mistake is in the script."""
        kind = type(error).__name__ if isinstance(error, TypeError | ValueError) else RuntimeError.__name__
        return Refused(kind, str(error))

    @property
    def error(self) -> Exception:
        """The exception, without the rank, which whoever tells of it names."""
        kinds = {each.__name__: each for each in (TypeError, ValueError)}
        return kinds.get(self.kind, RuntimeError)(_OF_RANK.sub("", self.sentence))


_OF_RANK = re.compile(r"^rank \d+: ")
# How many answers that are not awaited may be on their way to a process.
_MOST_AHEAD = 16
_LOOKING_S = 0.01


class Asking:
    """A rank's end of its connection to the simulator; `heard(now_ns)` is called with the time of each answer. Forked
    processes have copies of it, and receive nothing.
    """

    def __init__(self, connection: Connection, heard: Callable[[int | None], None]) -> None:
        self._connection, self._heard, self._process = connection, heard, os.getpid()
        self.behind = 1  # answers that have not been received: the first one says that all ranks have started
        self._is_talking = False

    def ask(self, turn: Turn, *, is_on_gpu: bool) -> Any:
        """Send a request and return its answer; None where it is not awaited."""
        is_ahead = is_on_gpu and not turn.request.is_awaited
        with self._talking():
            self._connection.send(turn)
            self.behind += 1
            return self._received(until=_MOST_AHEAD if is_ahead else 0)

    def receive(self) -> None:
        """Receive all answers that are behind. Called while the thread sends or receives, by a signal's handler or a
        finalizer of the script, do nothing: the thread would wait for ever for the answer.
        """
        if not self._is_talking:
            with self._talking():
                self._received(until=0)

    @contextmanager
    def _talking(self) -> Iterator[None]:
        before, self._is_talking = self._is_talking, True
        try:
            yield
        finally:
            self._is_talking = before

    def _received(self, until: int) -> Any:
        """Receive answers until as many are behind, and return the last one."""
        answer = None
        while self.behind > until:
            given = self._connection.recv_bytes()
            self.behind -= 1  # also where it cannot be unpickled
            answer, now_ns = ForkingPickler.loads(given)
            self._heard(now_ns)
        return answer

    def catch_up(self, lock: RLock) -> None:
        """Receive all answers that are behind; none in a forked process, or while another thread sends or receives."""
        if not self.behind or os.getpid() != self._process:
            return
        while not lock.acquire(timeout=_LOOKING_S):  # a thread that launches a kernel has it for some microseconds
            if self._is_talking:
                return
        try:
            self.receive()
        finally:
            lock.release()


Tensors = list[Tensor]
# What verbs take, of the tensors that they read and those that they fill; others take each by itself, these first.
_ARGUMENTS: dict[str, Callable[[Tensors, Tensors], Sequence[Any]]] = {
    "all_reduce_coalesced": lambda inputs, targets: [inputs],
    "all_gather": lambda inputs, targets: [targets, *inputs],
    "reduce_scatter": lambda inputs, targets: [*targets, inputs],
    "gather": lambda inputs, targets: [*inputs, targets or None],
    "scatter": lambda inputs, targets: [*targets, inputs or None],
    "all_gather_coalesced": lambda inputs, targets: [_rows(targets, len(inputs)), inputs],
    **dict.fromkeys(
        ("all_to_all", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"),
        lambda inputs, targets: [targets, inputs],
    ),
}


def _one_by_one(inputs: Tensors, targets: Tensors) -> Sequence[Any]:
    return [*targets, *inputs]


def _rows(tensors: Tensors, width: int) -> list[Tensors]:
    return [tensors[start : start + width] for start in range(0, len(tensors), width)]


def issue(
    rank: Rank,
    verb: str,
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    *,
    group: Group,
    label: str,
    options: Mapping[str, Any],
) -> Work[Any]:
    """Call a verb of `Rank`; tensors as an `IssueCall` has them."""
    given = dict(options)
    if "op" in given:
        given["op"] = getattr(ReduceOp, given["op"])
    arguments = _ARGUMENTS.get(verb, _one_by_one)
    tensors = arguments(list(inputs), list(targets))
    work: Work[Any] = getattr(rank, verb)(*tensors, group=group, label=label, **given)
    return work

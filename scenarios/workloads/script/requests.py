"""What a rank's process asks of the simulated rank that it is, one request at a time, each of which is answered.

A request is (what was computed since the last answer, kind, argument):

    "issue"         a `Collective`: answered by a `Refused` where its arguments are wrong
    "wait"          (its number, a stream): answered by its outputs
    "new_group"     of ranks: answered by its number
    "synchronize"   the host waits for a stream of the GPU, by its number, or with None for all that the GPU was given
    "synchronize_event" likewise for what its stream had been given when an event was recorded, by its number
    "synchronize_call" likewise for a call, by its number, whose outputs are not asked for
    "elapsed"       (an event, another one), by their numbers: answered by the ns between them; waits for both
    "query"         ("event", "stream" or "call", its number): the host looks whether it is over; answered so
    "plan"          where tables are, as `torchrec_plan.plan_found` has it
    "replica"       a module under DistributedDataParallel: its number, its group's, whether it has a hook, and [shape,
                    type] of its gradients in the order of their arrival
    "store"         a `Stored`, answered once other ranks allow it
    "sleep"         the script sleeps on a CPU: for how many ns
    "memory"        the most bytes that the GPU's tensors took so far
    "reserved"      the most bytes that the allocator reserved of the GPU's memory so far
    "left_out"      what the present step did that is not predicted, in words
    "on_cpu"        what the present step computed on the CPU beside a GPU: [what, line, counts of `HostWork`] of each
    "loaded"        workers of a data loader have loaded a batch: [the loader's number, how many workers, how many
                    batches each is ahead, turns as `HostWork` has them, the line that takes it]
    "compiled"      what torch.compile would have had given since the last request, for the recording alone
    "step"          one is over
    "record"        (the name of a metric, its value)
    "end"           how it ended and what was seen, as `outcome.Seen` has it
    "error"         a sentence, and the script's frames below it
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A call of torch.distributed: a verb of `Rank`, the number of its group, tensors that it reads and that it writes,
    and what else the verb takes. Verbs that write over what they read have `inputs` alone. `of_reducer`: it is
    DistributedDataParallel's, of gradients. `library`: what torch would take for it, where that is gloo; "": the
    scenario's.
    """

    number: int
    verb: str
    group: int
    label: str
    stream: int = 0
    inputs: Sequence[Packed] = ()
    outputs: Sequence[Packed] = ()
    options: dict[str, Any] = field(default_factory=dict)
    of_reducer: bool = False
    library: str = ""


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


@dataclass(frozen=True, slots=True)
class Launched:
    """What a stream of a script's GPU was given: a kernel with what it is for, an event to `record`, or one to `wait`
    for, by numbers. Or what had come so far when a replica's `gradient` was there, by the replica's number and its own.
    """

    stream: int
    kernel: Kernel | None = None
    label: str = ""
    record: int | None = None
    wait: int | None = None
    gradient: tuple[int, int] | None = None


class Computed(NamedTuple):
    """So many ns of CPU time, and what they were for."""

    cpu_ns: int
    label: str


def part_of(each: Computed | Launched | HostWork) -> str | Launched | None:
    """Return what goes together: what a CPU computed for the same, what a GPU was given; each gradient is by itself."""
    if isinstance(each, Computed):
        return each.label
    return each if isinstance(each, Launched) and each.gradient is not None else None


# What was computed meanwhile; beside a GPU with what its host did, each ahead of what it launched then.
Spent = Sequence[Computed | Launched | HostWork]
# What was computed since the last one, its kind and its argument.
Request = tuple[Spent, str, Any]
# What a process with a GPU goes on after at once, as the answer says nothing but the time: it computes ahead of its
# simulated host until it asks for something else, or reads the clock; at most `_MOST_AHEAD` answers are on their way.
_NOT_AWAITED = frozenset(
    {
        *("synchronize", "synchronize_event", "synchronize_call"),
        *("memory", "reserved", "on_cpu", "loaded", "record", "compiled"),
    }
)
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

    def ask(self, request: Request, *, is_on_gpu: bool) -> Any:
        """Send a request and return its answer; None where it is not awaited."""
        is_ahead = is_on_gpu and request[1] in _NOT_AWAITED
        with self._talking():
            self._connection.send(request)
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
    """Call a verb of `Rank`; tensors as a `Collective` has them."""
    given = dict(options)
    if "op" in given:
        given["op"] = getattr(ReduceOp, given["op"])
    arguments = _ARGUMENTS.get(verb, _one_by_one)
    tensors = arguments(list(inputs), list(targets))
    work: Work[Any] = getattr(rank, verb)(*tensors, group=group, label=label, **given)
    return work

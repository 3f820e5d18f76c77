"""The state of a simulated run: one object that ranks share; the verbs are left to `rank`, time to `machine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from scenarios.calls import Call
from scenarios.errors import CollectiveError, ProgramError
from scenarios.rank import Group, Kernel
from scenarios.scenario import Scenario
from scenarios.trace import Metric, Span
from sim.machine import Machine
from sim.meeting import Meeting, Transport

if TYPE_CHECKING:
    from sim.work import SimWork


class Draft:
    """A span in the making."""

    __slots__ = (
        "call",
        "end_ns",
        "host",
        "index",
        "issued_ns",
        "kernel",
        "kind",
        "label",
        "rank",
        "sequence",
        "start_ns",
        "step",
        "stream",
        "wait_from_ns",
        "wait_until_ns",
    )

    def __init__(self, rank: int, host: int, stream: str, kind: str, label: str) -> None:
        self.rank, self.host, self.stream, self.kind, self.label = rank, host, stream, kind, label
        self.step = self.sequence = self.index = -1
        self.issued_ns = self.start_ns = self.end_ns = self.wait_from_ns = self.wait_until_ns = -1
        self.call: Call | None = None
        self.kernel: Kernel | None = None

    @property
    def name(self) -> str:
        """The operation as a person reads it in an error."""
        return self.kind if self.label in ("", self.kind) else f"{self.kind} '{self.label}'"

    def describe(self) -> str:
        """The operation and where it was issued."""
        return f"{self.name} on stream {self.stream}" + (f" in step {self.step}" if self.step >= 0 else "")

    def span(self) -> Span:
        """The finished record."""
        call, kernel = self.call, self.kernel
        return Span(
            rank=self.rank,
            host=self.host,
            stream=self.stream,
            step=self.step,
            sequence=self.sequence,
            kind=self.kind,
            label=self.label,
            group=call.group.name if call else "",
            call=self.index,
            issued_ns=self.issued_ns,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            wait_from_ns=self.wait_from_ns,
            wait_until_ns=self.wait_until_ns,
            bytes_in=call.bytes_in if call else 0,
            bytes_out=call.bytes_out if call else 0,
            bytes_sent=call.bytes_sent if call else 0,
            dtype=call.dtype if call else kernel.dtype if kernel else "",
            kernel=kernel.kind if kernel else "",
            flops=kernel.flops if kernel else 0.0,
            bytes_read=kernel.bytes_read if kernel else 0.0,
            bytes_written=kernel.bytes_written if kernel else 0.0,
        )


class Lane:
    """A queue served by `width` workers, first in first out: a NCCL stream has one, a gloo group two."""

    __slots__ = ("_free", "_queue")

    def __init__(self, width: int) -> None:
        self._free = width
        self._queue: deque[Callable[[], None]] = deque()

    def enter(self, function: Callable[[], None]) -> None:
        """Call `function` when a worker is free; it is busy until `leave`."""
        if self._free:
            self._free -= 1
            function()
        else:
            self._queue.append(function)

    def leave(self) -> None:
        """A worker is done."""
        if self._queue:
            self._queue.popleft()()
        else:
            self._free += 1


class World:
    """Everything that the ranks of one simulated run share."""

    def __init__(self, scenario: Scenario, machine: Machine, transport: Transport, lane_width: int) -> None:
        self.scenario = scenario
        self.machine = machine
        self.transport = transport
        self.device = torch.device("meta" if scenario.payload == "sizes" else "cpu")
        size = scenario.cluster.world_size
        self.step = [-1] * size  # of each rank; what is spawned belongs to the step in which it was
        self.streams: list[list[str]] = [["main"] for _ in range(size)]
        self.drafts: list[Draft] = []
        self.metrics: list[Metric] = []
        self.outstanding: dict[Draft, SimWork[Any]] = {}
        self.waiting: dict[Draft, SimWork[Any]] = {}
        # Coroutines that were spawned and have not begun: closed when the run ends early.
        self.pending: dict[Coroutine[Any, Any, Any], None] = {}
        self._lane_width = lane_width
        self._groups: dict[str, Group] = {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._meetings: dict[tuple[str, int], Meeting] = {}
        self._calls: dict[tuple[str, int], int] = {}

    def group(self, name: str, ranks: range) -> Group:
        """One object for all its members: a tuple of ranks for each rank would be ranks squared."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, tuple(ranks))
        return group

    def start(self, rank: int, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of a rank; what it raises ends the run, and names the rank."""
        self.machine.clock.start(_named(rank, coroutine))

    def next_call(self, group: str, rank: int) -> int:
        """How many calls this rank has issued on this group before."""
        index = self._calls.get((group, rank), 0)
        self._calls[group, rank] = index + 1
        return index

    def meeting(self, group: Group, index: int) -> Meeting:
        """The one meeting of all members' `index`-th calls on a group; forgotten when all are through."""
        key = (group.name, index)
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = Meeting(group, index)
            meeting.everyone.then(partial(self._meetings.__delitem__, key))
        if meeting.group != group:
            raise CollectiveError(
                f"group {group.name}: one rank made it of ranks {list(meeting.group.ranks)},"
                f" another of {list(group.ranks)}"
            )
        return meeting

    def lane(self, group: str, rank: int) -> Lane:
        """The queue in which this rank's calls on a group are served."""
        lane = self._lanes.get((group, rank))
        if lane is None:
            lane = self._lanes[group, rank] = Lane(self._lane_width)
        return lane

    def record(self, rank: int, step: int, name: str, value: float) -> None:
        """Keep a metric of a rank's step."""
        self.metrics.append(Metric(rank=rank, step=step, name=name, value=value))


async def _named(rank: int, coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        await coroutine
    except ProgramError:
        raise
    except Exception as error:
        raise raised(rank, error) from error


def raised(rank: int, error: BaseException) -> ProgramError:
    """The sentence for what a program raised itself; that of a verb names the rank already."""
    if str(error).startswith(f"rank {rank}: "):
        return ProgramError(str(error))
    return ProgramError(f"rank {rank} raised {type(error).__name__}: {error}")

"""The state of a simulated run: one object that ranks share; the verbs are left to `rank`, time to `machine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from scenarios.config.compute_times import Calls
from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Group
from scenarios.seam.trace import Metric
from sim.engine.machine import Machine
from sim.rank.group_rendezvous import Founding
from sim.rank.open_span import Draft
from sim.rank.reduction import in_group_order, in_rings
from sim.rank.rendezvous import Meeting, Transport
from sim.rank.step_ledger import Ledger

if TYPE_CHECKING:
    from sim.rank.work import SimWork


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

    def __init__(
        self,
        scenario: Scenario,
        machine: Machine,
        transport: Transport,
        lane_width: int,
        take: Callable[[list[Draft]], None],
        classes: HostClasses | None = None,
    ) -> None:
        """`take` is given what has ended, as `Ledger` hands it on; `classes`: host classes, if only those run."""
        self.scenario = scenario
        self.host_classes = classes
        self.machine = machine
        self.transport = transport
        self.device = torch.device("meta" if scenario.payload == "sizes" else "cpu")
        size = scenario.cluster.world_size
        self.ranks: Sequence[int] = range(size) if classes is None else classes.ranks
        counts = (1,) * size if classes is None else classes.rank_counts
        self.rank_counts = dict(zip(self.ranks, counts, strict=True))  # ranks that each one stands for
        self.step = [-1] * size  # of each rank; what is spawned belongs to the step in which it was
        self.has_computed = [False] * size  # since its step began
        self.step_began_ns = [0] * size
        self.streams = {rank: ["main"] for rank in self.ranks}
        self.computations = Calls(scenario.compute_times)
        self.ledger = Ledger(len(self.ranks), take)
        self.metrics: list[Metric] = []
        self.outstanding: dict[Draft, SimWork[Any]] = {}
        self.waiting: dict[Draft, SimWork[Any]] = {}
        # Coroutines that were spawned and have not begun: closed when the run ends early.
        self.pending: dict[Coroutine[Any, Any, Any], None] = {}
        self._lane_width = lane_width
        self._reduce = in_rings if scenario.library == "gloo" else in_group_order
        self._groups: dict[str, Group] = {}
        self._foundings: list[Founding] = []
        self._founded = [0] * size  # how often each rank has set up a group or a stream
        self._founding_of: dict[str, Founding] = {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._meetings: dict[tuple[str, int], Meeting] = {}
        self._calls: dict[tuple[str, int], int] = {}

    def group(
        self, name: str, ranks: Sequence[int], founding: Founding | None = None, *, is_in_host: bool = False
    ) -> Group:
        """One object for all its members: a tuple of ranks for each rank would be ranks squared.

        Where ranks differ, its founding says so before anybody can use it; the first stays. Where not all are played,
        members are those that are, for all others, unless the group is inside one host and each host has its own.
        """
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = self._make(name, ranks, is_in_host=is_in_host)
            if founding is not None:
                self._founding_of[name] = founding
        return group

    def _make(self, name: str, ranks: Sequence[int], *, is_in_host: bool) -> Group:
        if self.host_classes is None or is_in_host:
            return Group(name, tuple(ranks))
        played = tuple(rank for rank in self.ranks if rank in ranks)
        return Group(name, played, tuple(self.rank_counts[rank] for rank in played))

    def knows(self, group: Group) -> bool:
        """Whether the group was made in this run."""
        known = self._groups.get(group.name)
        return known is group or known == group

    def founding(self, rank: int) -> Founding:
        """Where this rank meets the others to set up its next group or stream."""
        index = self._founded[rank]
        self._founded[rank] += 1
        if index == len(self._foundings):
            self._foundings.append(Founding(self.ranks))
        return self._foundings[index]

    def check_founded(self, group: Group) -> None:
        """Nothing, unless the ranks have set up the group, or its stream, differently: then CollectiveError."""
        founding = self._founding_of.get(group.name)
        if founding is not None:
            founding.check()

    def check_foundings(self, *, has_ended: bool) -> None:
        """At the end: nothing, unless the ranks have set up any group or stream differently: then CollectiveError."""
        for founding in self._foundings:
            founding.check_at_end(has_ended=has_ended)

    def start(self, rank: int, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine of a rank; what it raises ends the run, and names the rank."""
        self.machine.clock.start(partial(_named, rank, begin))

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
            meeting = self._meetings[key] = Meeting(group, index, self._reduce)
            meeting.everyone.then(partial(self._meetings.__delitem__, key))
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


async def _named(rank: int, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await begin()
    except ProgramError:
        raise
    except Exception as error:
        raise raised(rank, error) from error


def raised(rank: int, error: BaseException) -> ProgramError:
    """The sentence for what a program raised itself; that of a verb names the rank already."""
    if str(error).startswith(f"rank {rank}: "):
        return ProgramError(str(error))
    return ProgramError(f"rank {rank} raised {type(error).__name__}: {error}")

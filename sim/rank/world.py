"""The state of a simulated run that all its ranks share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, cast

import torch

from scenarios.config.compute_times import ComputeCounter
from scenarios.config.host_classes import HostClasses
from scenarios.config.interconnect import LibraryName
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError, ScenarioError, tell_error, users_traceback
from scenarios.seam.group import Group
from scenarios.seam.trace import Metric
from sim.engine.machine import Machine
from sim.library import Library, Transport, library_of
from sim.rank.balance import Balance, PricedComputation
from sim.rank.kernel_ledger import KernelLedger
from sim.rank.layer_ledger import LayerLedger
from sim.rank.observed import Observed, ObservedComputation, Rewrite, as_it_is
from sim.rank.operation import Operation
from sim.rank.operator_ledger import OperatorLedger
from sim.rank.rendezvous import GroupRendezvous, Rendezvous
from sim.rank.step_ledger import StepLedger


class Lane:
    """A FIFO queue served by `width` workers: a NCCL stream has one, a gloo group two."""

    __slots__ = ("_free", "_is_leaving", "_queue")

    def __init__(self, width: int) -> None:
        self._free, self._is_leaving = width, False
        self._queue: deque[Callable[[], None]] = deque()

    def enter(self, function: Callable[[], None]) -> None:
        """Call `function` when a simulated worker is free, in the order of calls; the worker is busy until `leave`."""
        # Not past the queue, even if a worker is free: `leave` may be about to start an earlier call.
        if self._free and not self._queue:
            self._free -= 1
            function()
        else:
            self._queue.append(function)

    def leave(self) -> None:
        """Free a worker, which takes the next function; loops instead of recursing, as many may end at once."""
        self._free += 1
        if self._is_leaving:
            return
        self._is_leaving = True
        while self._free and self._queue:
            self._free -= 1
            self._queue.popleft()()
        self._is_leaving = False


class World:
    """A simulated run's state, shared by its ranks."""

    def __init__(
        self,
        scenario: Scenario,
        machine: Machine,
        library: Library,
        take: Callable[[list[Operation]], None],
        *,
        classes: HostClasses | None = None,
    ) -> None:
        """Set up the run; `take` gets ended operations from `StepLedger`, `classes` are the host classes if folded."""
        self.scenario, self.machine, self.classes = scenario, machine, classes
        self.transport = library.transport(scenario, machine, classes)
        self.threads = self.transport.threads
        self.device = torch.device("meta" if scenario.run.payload == "sizes" else "cpu")
        size = scenario.cluster.world_size
        self.ranks: Sequence[int] = range(size) if classes is None else classes.ranks
        counts = (1,) * size if classes is None else classes.rank_counts
        self.rank_counts = dict(zip(self.ranks, counts, strict=True))  # number of ranks that each represents
        self.has_computed = [False] * size  # since its step began
        self.launched_until_ns = [0] * size  # per rank, by its host, which runs ahead of its GPU
        self.streams = {rank: ["main"] for rank in self.ranks}
        self.balance: Balance | None = None  # set for balanced runs
        self.rewrite: Rewrite = as_it_is
        self.observed: Observed | None = None  # of the first rank, if requested
        self._measured = ComputeCounter(scenario.run.compute_times)
        self.ledger = StepLedger(len(self.ranks), take)
        # Only of the first rank: the kernels of every rank would multiply the rows.
        self.kernels: KernelLedger | None = None
        self.operators: OperatorLedger | None = None
        self.layers = LayerLedger(machine, self.ranks[0])
        if scenario.cluster.host.gpu.device.is_launched:
            self.kernels, self.operators = KernelLedger(machine, self.ranks[0]), OperatorLedger()
        self.metrics: list[Metric] = []
        self.outstanding: dict[Operation, None] = {}
        self.waiting: dict[Operation, None] = {}
        # Spawned coroutines that have not begun; closed when the run ends early.
        self.pending: dict[Coroutine[Any, Any, Any], None] = {}
        self._libraries = {"": (library, self.transport)}  # by `Group.library`
        self._groups: dict[str, Group] = {}
        self._group_rendezvous: list[GroupRendezvous] = []
        self._made = [0] * size  # groups and streams that each rank has made
        self._made_in: dict[str, GroupRendezvous] = {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._rendezvous: dict[tuple[str, int], Rendezvous] = {}
        self._calls: dict[tuple[str, int], int] = {}

    def give_up(self, step: Operation) -> None:
        """Take a rank's step out of the run: its operations belong to no step, and its metrics are dropped."""
        number = step.step  # read before the ledger resets it
        self.metrics = [each for each in self.metrics if (each.rank, each.step) != (step.rank, number)]
        self.ledger.give_up(step)
        if self.kernels is not None and step.rank == self.ranks[0]:
            self.kernels.give_up(number)

    def group(
        self,
        name: str,
        ranks: Sequence[int],
        made_in: GroupRendezvous | None = None,
        *,
        is_in_host: bool = False,
        library: str = "",
    ) -> Group:
        """Return the group of that name, one object for all members: a tuple per rank would take memory ~ ranks^2.

        If ranks disagree, the first call's group stays, and the rendezvous raises before it is used. Where only
        representatives are simulated, they are the members, unless the group is inside one host.
        """
        group = self._groups.get(name)
        if group is None:
            members, counts = tuple(ranks), tuple[int, ...]()
            if self.classes is not None and not is_in_host:
                members = tuple(rank for rank in self.ranks if rank in ranks)
                counts = tuple(self.rank_counts[rank] for rank in members)
            group = self._groups[name] = Group(name, members, counts, library)
            if made_in is not None:
                self._made_in[name] = made_in
        return group

    def over(self, group: Group, library: str) -> Group:
        """Return a group of the same members whose calls another library carries; not for groups of representatives."""
        assert not group.counts, "what represents others is folded, which few libraries can be"
        return self.group(f"{group.name} over {library}", group.ranks, self._made_in.get(group.name), library=library)

    def transport_of(self, group: Group) -> Transport:
        """Return the transport that carries a group's calls."""
        return self._carrying(group)[1]

    def _carrying(self, group: Group) -> tuple[Library, Transport]:
        """Return the library and transport of a group; other libraries than the scenario's simulate by links only."""
        if group.library not in self._libraries:
            library = library_of(cast(LibraryName, group.library))
            by_links = self.scenario.with_run(fidelity="links")
            self._libraries[group.library] = library, library.transport(by_links, self.machine, None)
        return self._libraries[group.library]

    def knows(self, group: Group) -> bool:
        """Return whether the group was made in this run; CollectiveError if the ranks made it with different calls."""
        known = self._groups.get(group.name)
        if known is not group and known != group:
            return False
        made_in = self._made_in.get(group.name)
        if made_in is not None:
            made_in.check()
        return True

    def group_rendezvous(self, rank: int) -> GroupRendezvous:
        """Return the rendezvous of this rank's next new group or stream."""
        index = self._made[rank]
        self._made[rank] += 1
        if index == len(self._group_rendezvous):
            self._group_rendezvous.append(GroupRendezvous(self.ranks))
        return self._group_rendezvous[index]

    def check_groups(self, *, has_ended: bool) -> None:
        """Raise CollectiveError, at the end, if the ranks made any group or stream with different calls."""
        for one in self._group_rendezvous:
            one.check_at_end(has_ended=has_ended)

    def price(self, rank: int, stream: str, step: int, one: ObservedComputation) -> PricedComputation:
        """Return a rank's next computation with its price, measured or balanced if so; count it in the ledgers."""
        label, kernel = one.label, one.kernel
        measured = self._measured.next(rank, stream, step, label, cost=kernel)
        own = PricedComputation(kernel=kernel, measured_ns=None if measured is None else measured.time_ns)
        found = own if self.balance is None else self.balance.computation(rank, stream, step, label, own)
        self.layers.add(label, kernel)
        if self.operators is not None:
            self.operators.add(kernel)
        if self.kernels is not None and step >= 0 and rank == self.ranks[0]:
            self.kernels.add(step, label, kernel, found)
            if self.observed is not None:
                self.observed.record_computation(step, one)
        return found

    def note_wait(self, rank: int, step: int) -> None:
        """Record that a rank's host waited for its GPU."""
        if self.observed is not None and step >= 0 and rank == self.ranks[0]:
            self.observed.record_wait(step)

    def start(self, rank: int, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine of a rank; an exception ends the run with a message that names the rank."""
        self.machine.clock.start(partial(_name_task, rank, begin))

    def next_rendezvous(self, group: Group, rank: int) -> Rendezvous:
        """Return the rendezvous of this rank's next call on a group; forgotten when all members have entered."""
        name = group.name
        index = self._calls.get((name, rank), 0)
        self._calls[name, rank] = index + 1
        found = self._rendezvous.get((name, index))
        if found is None:
            found = self._rendezvous[name, index] = Rendezvous(
                group, index, self._carrying(group)[0].reduce, self._forget
            )
        return found

    def _forget(self, rendezvous: Rendezvous) -> None:
        del self._rendezvous[rendezvous.group.name, rendezvous.index]

    def lane(self, group: Group, rank: int) -> Lane:
        """Return the queue that serves this rank's calls on a group."""
        lane = self._lanes.get((group.name, rank))
        if lane is None:
            lane = self._lanes[group.name, rank] = Lane(self._carrying(group)[0].lanes)
        return lane


async def _name_task(rank: int, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await begin()
    except ProgramError:
        raise
    except Exception as error:
        raise error_of_rank(rank, error) from error


def error_of_rank(rank: int, error: BaseException) -> ProgramError:
    """Return the error for a program's own exception, naming the rank; verbs' messages name it already."""
    if isinstance(error, ScenarioError) or str(error).startswith(f"rank {rank}: "):
        # A mistake in a file has its sentence, and verbs' messages begin so: a traceback would add nothing.
        return ProgramError(str(error))
    return ProgramError("\n".join([f"rank {rank} raised {tell_error(error)}", *users_traceback(error)]))

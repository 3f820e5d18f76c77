"""The simulator's `Backend`: one stream of one rank, in simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import coroutine
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.backend import StepGivenUp, Work
from scenarios.seam.calls import Call, new_group_set_up, stream_set_up
from scenarios.seam.collectives import COLLECTIVES
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import PricedLater, price_now
from scenarios.seam.payload import NO_PAYLOAD
from scenarios.seam.roles import Purpose
from scenarios.seam.trace import Metric
from sim.clock import Clock, Signal
from sim.engine.roofline import KernelCost
from sim.hosts.cores import HostCores
from sim.rank.balance import PricedComputation
from sim.rank.observed import ObservedComputation
from sim.rank.operation import STEP, Operation
from sim.rank.rendezvous import GroupRendezvous
from sim.rank.world import World

T = TypeVar("T")


class SimBackend:
    """A rank of a simulated world on one stream."""

    control_device = torch.device("cpu")

    def __init__(self, world: World, rank: int, stream: str = "main", made_in: GroupRendezvous | None = None) -> None:
        """Open a stream; `made_in` is the rendezvous in which the ranks agree on it and on its groups."""
        self.shared, self.clock, self.rank, self.stream = world, world.machine.clock, rank, stream
        self.device, self.knows = world.device, world.knows
        cluster = world.scenario.cluster
        gpus, size = cluster.host.gpus, cluster.world_size
        self.world_size, self.local_world_size = size, gpus
        self.host, local = divmod(rank, gpus)
        self._is_launched = cluster.host.gpu.device.is_launched
        self._launches_eagerly = self._is_launched and not world.scenario.workload.launching.cuda_graphs
        self.thread = None if world.threads is None else world.threads.program(rank, stream)
        self._sequence = 0
        self._computed: Signal[Any] | None = None
        self._through: deque[Signal[Any]] = deque()  # waits that end at this instant, in order
        self._spawned: deque[Callable[[], None]] = deque()
        prefix = "" if stream == "main" else f"{stream}/"  # prefix of the names of its groups
        here = range(self.host * gpus, (self.host + 1) * gpus)
        self.world = world.group(f"{prefix}world", range(size), made_in)
        self.intra = world.group(f"{prefix}intra:{self.host}", here, made_in, is_in_host=True)
        self.cross = world.group(f"{prefix}cross:{local}", range(local, size, gpus), made_in)

    @property
    def now_ns(self) -> int:
        """Simulated time; for an eager GPU's host, which may be ahead, the time up to which it has worked."""
        return max(self.clock.now_ns, self.shared.launched_until_ns[self.rank])

    @property
    def threads(self) -> HostCores:
        """Threads of all hosts; valid only where they are modelled."""
        assert self.shared.threads is not None, "whose thread it is"
        return self.shared.threads

    def new_group(self, name: str, ranks: object) -> Group:
        """Make a group as `Backend.new_group` does; simulated groups need no set-up time.

        Raises:
            ProgramError: only representatives of host classes are simulated, so that some of the ranks do not exist.
        """
        world = self.shared
        if world.classes is not None:
            raise ProgramError(f"rank {self.rank}: new_group: expected run.ranks = 'each', which plays all its ranks")
        made_in = world.group_rendezvous(self.rank)
        set_up = made_in.enter(self.rank, lambda: new_group_set_up(self.rank, ranks, self.world_size, self.stream))
        return world.group(name, set_up.ranks, made_in)

    def open_stream(self, name: str) -> SimBackend:
        taken, made_in = self.shared.streams[self.rank], self.shared.group_rendezvous(self.rank)
        made_in.enter(self.rank, lambda: stream_set_up(self.rank, name, taken))
        taken.append(name)
        return SimBackend(self.shared, self.rank, name, made_in)

    def open_own_stream(self, name: str) -> SimBackend:
        """Return this rank on a new stream without collectives, which other ranks need not open."""
        self.shared.streams[self.rank].append(name)
        return SimBackend(self.shared, self.rank, name)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        work = self._operation("spawn", getattr(coroutine, "__name__", "spawn"), is_recorded=False)
        pending, step = self.shared.pending, STEP.get()
        pending[coroutine] = None

        async def play() -> None:
            del pending[coroutine]
            # A process has its own context, which lacks the spawner's step.
            STEP.set(step)
            try:
                value = await coroutine
            except Exception as error:  # raised where the program awaits the spawn
                work.finish(None, error)
            else:
                work.finish(value)
            # A stream runs its coroutines one after another, in the order of their spawns.
            self._spawned.popleft()
            if self._spawned:
                self._spawned[0]()

        self._spawned.append(lambda: self.shared.start(self.rank, play))
        if len(self._spawned) == 1:
            if self.thread is None:
                self._spawned[0]()
            else:  # the stream's idle thread has to wake up before it runs the coroutine's Python code
                self.thread.wake(self.threads.tcp.verb_ns, self._spawned[0])
        return work

    def after(self, work: Work[Any]) -> None:
        """Make the stream wait for a work, as `Backend.after` does, once its earlier work has ended."""
        assert isinstance(work, Operation), "works come from verbs"
        # The stream waits for the work, so the program need not await it.
        self.shared.outstanding.pop(work, None)
        before, through = self._computed, Signal[Any]()
        self._computed = through

        async def wait() -> None:
            await work

        def begin() -> None:
            if work.wait_from_ns < 0:
                work.wait_from_ns = self.clock.now_ns
                self.shared.start(self.rank, wait)
            work.then(end)

        def end() -> None:
            self._through.append(through)
            # Else a caller's loop fires it: recursion would be deep when many waits end at once.
            if len(self._through) == 1:
                while self._through:
                    self._through[0].fire()
                    self._through.popleft()

        _after(before, begin)

    async def synchronize(self, work: Work[T]) -> T:
        """Wait on the host, as `Backend.synchronize` does."""
        assert isinstance(work, Operation), "works come from verbs"
        if work.wait_from_ns < 0:
            try:
                await work
            except Exception as error:  # the work's own is raised below: the host has waited for it, too
                if error is not work.error:
                    raise
        else:  # a stream waits for it already, and its span shows that wait
            reached = self._operation("synchronize", work.name, is_recorded=False)
            work.then(reached.finish)
            await reached
        self._host_is_not_before(self.clock.now_ns)
        self.shared.note_wait(self.rank, STEP.get())
        if work.error is not None:
            raise work.error
        return cast(T, work.value)

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        world, clock = self.shared, self.clock
        before = STEP.get()
        STEP.set(index)
        world.has_computed[self.rank] = False
        step = self._operation("step", f"step {index}", is_awaited=False)
        step.wait_from_ns = step.wait_until_ns = step.start_ns = clock.now_ns
        try:
            yield
        except StepGivenUp:
            world.give_up(step)
        finally:
            step.end_ns = clock.now_ns
            world.ledger.finish(step)
            STEP.set(before)  # not `reset`: an abandoned coroutine is closed in another context

    def record(self, name: str, value: Tensor | float) -> None:
        self.shared.metrics.append(Metric(rank=self.rank, step=STEP.get(), name=name, value=float(value)))

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: Sequence[object], purpose: Purpose
    ) -> Work[T]:
        """Simulate a kernel in its stream's order; its function runs in the grad mode in which it was issued."""
        world, machine = self.shared, self.shared.machine
        kernel = world.rewrite(ObservedComputation(label, price_now(kernel), purpose.role))
        work = self._operation("compute", label)
        work.purpose = purpose
        priced = world.price(self.rank, self.stream, STEP.get(), ObservedComputation(label, kernel, purpose.role))
        work.kernel = priced.kernel
        mine: Signal[None] = Signal()
        # Grad mode is read now: all ranks share this thread, and another rank may have changed it when the kernel ends.
        before, records = self._computed, torch.is_grad_enabled()
        self._computed = mine
        world.has_computed[self.rank] = True
        # Launched at issue: the host launches in the program's order, before earlier kernels have ended.
        thread, (price, launched_ns) = self.thread, self._launch_kernel(priced, is_pause=bool(kernel.lasts_ns))

        def begin() -> None:
            if thread is None:
                run()
            else:
                thread.run(0 if priced.kernel.has_its_verb else self.threads.tcp.verb_ns, run)

        def run() -> None:
            work.start_ns = machine.clock.now_ns
            core = None if thread is None else thread.run
            done = machine.kernel(
                self.rank,
                priced.kernel,
                core,
                price=price,
                measured_ns=priced.measured_ns,
                launched_ns=launched_ns,
                launching=work.launching,
            )
            done.then(end)

        def end() -> None:
            with torch.set_grad_enabled(records):
                try:
                    value = function(*arguments)
                except Exception as error:  # the program's own mistake, raised where it awaits the work
                    work.finish(None, error)
                else:
                    work.finish(value)
            mine.fire()

        _after(before, begin)
        return work

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        world = self.shared
        # Numbered at issue: the n-th calls of all members meet, in whatever order the calls begin.
        lane, rendezvous = world.lane(group, self.rank), world.next_rendezvous(group, self.rank)
        member = group.ranks.index(self.rank)
        work = self._operation(call.op, call.label or call.op)
        work.call, work.rendezvous, work.purpose = call, rendezvous, call.purpose
        met, travels = call, None
        if group is call.group:
            work.index = rendezvous.index
            if world.balance is not None:
                work.call = travels = world.balance.call(self.stream, STEP.get(), call)
        else:
            met = call.for_group(group)
        payload = COLLECTIVES[call.op].payload(call, issue)
        issuing_ns = world.scenario.cluster.host.gpu.eager.collective_ns if self._launches_eagerly else 0
        issued_ns = self._launch(issuing_ns, 1)[1] if self._is_launched else 0

        def begin() -> None:
            late_ns = issued_ns - self.clock.now_ns
            if late_ns > 0:
                world.machine.sleep(late_ns).then(enter)
            else:
                enter()

        def enter() -> None:
            work.start_ns = self.clock.now_ns
            through: Signal[None] = Signal()
            through.then(lambda: end(through))
            rendezvous.enter(member, met, payload, through, travels)
            # Calls that do not fit move no data: they fail when the last member enters.
            if not (through.done or rendezvous.is_wrong):
                transport = world.transport_of(group) if group.library else world.transport
                transport.play(rendezvous, member, self.thread)

        def end(through: Signal[None]) -> None:
            work.formula_ns = rendezvous.formula_ns
            work.finish(issue.output, through.error)
            lane.leave()

        # The call begins after this stream's earlier computations, as on a device's stream.
        before = self._computed
        if self.thread is None:
            lane.enter(lambda: _after(before, begin))
        else:
            cost_ns = self.threads.issue_ns(is_cold=world.has_computed[self.rank])
            self.thread.run(cost_ns, lambda: lane.enter(lambda: _after(before, begin)))
        return work

    def over(self, group: Group, library: str) -> Group:
        """Return a group of the same members whose calls another library carries."""
        return self.shared.over(group, library)

    def pend(self, label: str) -> Operation:
        """Return a work that another rank finishes, for waits outside of collectives."""
        return self._operation("store", label, is_recorded=False)

    def sleep(self, until_ns: int) -> Operation:
        """Return a work that ends at that simulated time, or now if it has passed."""
        work = self.pend("sleep")
        self.shared.machine.sleep(max(0, until_ns - self.clock.now_ns)).then(work.finish)
        return work

    async def let_others(self) -> None:
        """Suspend until everything else at this instant has happened."""
        passed = Signal[None]()
        self.clock.call_last(passed.fire)
        await _until(passed, self.clock)

    def refuse(self, call: Call, group: Group) -> None:
        """Enter the rendezvous with a refused call, as `Backend.refuse` does: all members fail."""
        rendezvous = self.shared.next_rendezvous(group, self.rank)
        rendezvous.enter(group.index(self.rank), call.for_group(group), NO_PAYLOAD, Signal())

    def _operation(self, kind: str, label: str, *, is_recorded: bool = True, is_awaited: bool = True) -> Operation:
        operation = Operation(self, kind, label, self._sequence if is_recorded else -1)
        self._sequence += is_recorded
        self.shared.ledger.begin(operation, is_recorded=is_recorded)
        if is_awaited:
            self.shared.outstanding[operation] = None
        return operation

    def host_work(self, work: HostWork) -> int:
        """Count host work, as `Backend.host_work` does."""
        if not self._is_launched:
            return self.clock.now_ns
        return self._launch(self._host_ns(work), 1)[1]

    def _host_ns(self, work: HostWork) -> int:
        """Return the time of the rank's host for `work`; with CUDA graphs it only computes, and waits for threads."""
        if not self._launches_eagerly:
            work = work.own_work._replace(waits_ns=work.waits_ns)
        return self.shared.scenario.cluster.host.gpu.eager.takes_ns(work)

    def _launch_kernel(
        self, priced: PricedComputation, *, is_pause: bool
    ) -> tuple[KernelCost | None, tuple[int, int] | None]:
        """Have the rank's host launch a computation; return its price, as far as it is known yet, and when its first
        and its last launch are through; None where launches precede the kernel.
        """
        if self._launches_eagerly and not is_pause:
            price = priced.price or self.shared.machine.cost(priced.kernel)
            return price, self._launch(price.launch_ns, max(priced.kernel.launches, 1))
        if is_pause or not self._is_launched:
            return priced.price, (0, 0) if self._is_launched else None
        # With its graph, before the step; but not before what the host computes.
        return priced.price, self._launch(self._host_ns(priced.kernel.host), 1)

    def _launch(self, takes_ns: int, launches: int) -> tuple[int, int]:
        """Occupy the rank's host for `takes_ns` with `launches` launches; return when the first and the last are done.

        A program awaits its work in simulated time; on a real GPU an await lets only the stream wait, and the host goes
        on, across steps. A launch therefore begins after the previous one, on any stream, rather than after its
        dependencies; but not before the host's last wait.
        """
        until_ns = self.shared.launched_until_ns
        if STEP.get() < 0:
            self._host_is_not_before(self.clock.now_ns)
        begun_ns = until_ns[self.rank]
        until_ns[self.rank] = begun_ns + takes_ns
        return begun_ns + takes_ns // launches, begun_ns + takes_ns

    def _host_is_not_before(self, now_ns: int) -> None:
        until_ns = self.shared.launched_until_ns
        until_ns[self.rank] = max(until_ns[self.rank], now_ns)


@coroutine
def _until(signal: Signal[None], clock: Clock) -> Generator[Any, Any, None]:
    """Suspend until a signal has been fired."""
    yield from signal.wait(clock)


def _after(before: Signal[Any] | None, function: Callable[[], None]) -> None:
    if before is None:
        function()
    else:
        before.then(function)

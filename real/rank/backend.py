"""torch.distributed's `Backend`: one stream of one rank on a real device."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from torch import Tensor

from real.libraries.errors import failure_of
from real.libraries.moves import Joined
from real.rank.call_checker import CHECKING, CheckedCall
from real.rank.context import RankContext
from real.rank.drive import Spawned, StreamThread, name_of
from real.rank.journal import STEP, Entry
from real.rank.lanes import PendingCall, lasting
from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Work
from scenarios.seam.calls import Call, new_group_set_up, stream_set_up
from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel, PricedLater
from scenarios.seam.roles import Purpose

T = TypeVar("T")


class TorchBackend:
    """A rank of a real world on one stream."""

    def __init__(self, context: RankContext, stream: str = "main") -> None:
        self.context, self.stream = context, stream
        self._lane = context.new_lane(is_main=stream == "main")
        self._thread = StreamThread(f"rank {context.rank} {stream}")
        self._sequence = count()
        self._starts = context.library.starts
        self.rank, self.world_size, self.local_world_size = context.rank, context.world_size, context.local_world_size
        self.device = self.control_device = context.device
        self.knows = context.knows
        prefix = "" if stream == "main" else f"{stream}/"  # prefix of the names of its groups
        gpus, ranks = self.local_world_size, range(self.world_size)
        host, local = divmod(self.rank, gpus)
        # Every rank makes all groups, also those of others: torch's `new_group` needs all ranks, in one order.
        hosts = [tuple(ranks[first : first + gpus]) for first in ranks[::gpus]]
        self.world = context.join(f"{prefix}world", tuple(ranks))
        self.intra = [context.join(f"{prefix}intra:{one}", members) for one, members in enumerate(hosts)][host]
        self.cross = [context.join(f"{prefix}cross:{one}", tuple(ranks[one::gpus])) for one in range(gpus)][local]

    @property
    def now_ns(self) -> int:
        """Monotonic time of this process, in ns."""
        return time.perf_counter_ns()

    def new_group(self, name: str, ranks: object) -> Group:
        """Make a group, as `Backend.new_group` does."""
        agreements = self.context.agreements
        with agreements.agree(
            lambda: new_group_set_up(self.rank, ranks, self.world_size, self.stream), self._lane, self.stream
        ) as set_up:
            return self.context.join(name, set_up.ranks)

    def open_stream(self, name: str) -> TorchBackend:
        """Open a stream, as `Backend.open_stream` does."""
        streams = self.context.streams
        with self.context.agreements.agree(lambda: stream_set_up(self.rank, name, streams), self._lane, self.stream):
            # After the ranks have agreed: a refused stream must not count as taken.
            streams.append(name)
            return TorchBackend(self.context, name)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Run a coroutine, as `Backend.spawn` does: one thread per stream runs them in order."""
        journal = self.context.journal
        entry = Entry(self._lane, self.stream, "spawn", name_of(coroutine))
        journal.note_issue(entry)
        spawned = Spawned(coroutine, journal, self._thread, entry)
        spawned.start()
        return spawned

    def after(self, work: Work[Any]) -> None:
        """Order work, as `Backend.after` does: on a GPU awaiting makes the stream wait, on a CPU the thread is the
        order.
        """
        for _ in work.__await__():
            raise AssertionError("works of a real rank never suspend")

    async def synchronize(self, work: Work[T]) -> T:
        """Wait as `Backend.synchronize` does: the host waits for the stream, which waits for the work."""
        value = await work
        self._lane.synchronize()
        return value

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """Delimit a step, as `Backend.step` does; rows are spooled after its span. A failed step has no span."""
        context, token = self.context, STEP.set(index)
        context.observer.step_begins(index)
        entry = self._entry("step", f"step {index}")
        entry.wait_from = entry.wait_until = entry.issued
        context.journal.keep(entry, is_awaited=False)
        try:
            yield
            entry.end = self._lane.mark()
        finally:
            STEP.reset(token)
            context.step_ends()
            context.observer.step_ends()

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a metric, as `Backend.record` does."""
        self.context.journal.record(name, self._lane.read(value))

    def host_work(self, work: HostWork) -> int:
        """Do nothing, as a real host does its work anyway; return the time."""
        return self.now_ns

    def compute(
        self, kernel: PricedLater, label: str, function: Callable[..., T], arguments: Sequence[object], purpose: Purpose
    ) -> Work[T]:
        """Run a kernel, as `Backend.compute` does."""
        entry = self._entry("compute", label)
        entry.kernel, entry.purpose = kernel, purpose
        self.context.journal.keep(entry)
        if isinstance(kernel, Kernel) and kernel.lasts_ns:
            function = partial(lasting, kernel.lasts_ns, function)
        try:
            value = self._lane.run(entry, function, arguments)
        except Exception as error:
            # Kept for the await, as in the simulator, where a function's error appears only when its kernel is awaited.
            return LaunchedKernel(self.context, entry, None, error)
        return LaunchedKernel(self.context, entry, value, None)

    def issue(self, call: Call, group: Group, issue: Issue) -> Work[Any]:
        """Begin a collective, as `Backend.issue` does: at once, or on the thread of a checker.

        The checker holds the call if calls are checked, or while it still holds earlier ones. A message's order is that
        of its source and target, not its group's; what the pair checks follows from the pair alone.
        """
        context = self.context
        entry = self._entry(call.op, call.label or call.op)
        entry.call = call
        if group is call.group:
            checker, entry.index = context.checker(group), context.journal.next_call(group.name)
            is_checked = CHECKING.get()
            is_held = is_checked or checker.is_needed
        else:
            checker, is_checked = context.pair_checker(call.group, group), CHECKING.get()
            is_held = checker.is_needed
        context.journal.keep(entry)  # before the library call, so that the journal shows where a hanging rank is
        if is_held:

            def begin() -> PendingCall:
                """Start the call on the checker's thread, after what the caller's stream had launched; follow it at
                once.
                """
                with self._lane.beside(entry.start):
                    pending = self._start(entry, call, checker.joined, issue)
                self._lane.overtakes()
                return pending

            held = checker.hold(CheckedCall(call.for_group(group), begin, is_checked=is_checked))
            return Issued(context, entry, held, issue.output)
        try:
            with self._lane.enter(entry.start):
                return Issued(context, entry, self._start(entry, call, checker.joined, issue), issue.output)
        except RuntimeError as error:
            raise failure_of(self.rank, entry.describe(), error) from error

    def refuse(self, call: Call, group: Group) -> None:
        """Refuse a call, as `Backend.refuse` does: it takes its place in the order if calls are checked."""
        context = self.context
        if group is call.group:
            context.journal.next_call(group.name)
            context.refuse(context.checker(group), call)
        else:
            context.refuse(context.pair_checker(call.group, group), call.for_group(group))

    def _start(self, entry: Entry, call: Call, joined: Joined, issue: Issue) -> PendingCall:
        sent = self._starts[call.op](joined, call, issue)
        return self._lane.follow(entry, sent.work, sent.finish, (issue, sent.held))

    def _entry(self, kind: str, label: str) -> Entry:
        return Entry(self._lane, self.stream, kind, label, sequence=next(self._sequence))


class Issued(Generic[T]):
    """An issued collective, as a Work."""

    __slots__ = ("_context", "_entry", "_pending", "_result")

    def __init__(self, context: RankContext, entry: Entry, pending: PendingCall, result: T) -> None:
        self._context, self._entry, self._pending, self._result = context, entry, pending, result

    def __await__(self) -> Generator[Any, Any, T]:
        entry, journal = self._entry, self._context.journal
        journal.stands(entry)
        try:
            entry.lane.stand(entry, self._pending)
        except RuntimeError as error:
            raise failure_of(self._context.rank, entry.describe(), error) from error
        except CollectiveError:
            entry.end = entry.wait_until = entry.lane.mark()
            raise
        finally:
            journal.goes_on(entry)
        return self._result
        yield  # pragma: no cover - makes this a generator


class LaunchedKernel(Generic[T]):
    """A launched kernel (on a CPU: one that has run), as a Work."""

    __slots__ = ("_context", "_entry", "_error", "_value")

    def __init__(self, context: RankContext, entry: Entry, value: T | None, error: Exception | None) -> None:
        self._context, self._entry, self._value, self._error = context, entry, value, error

    def __await__(self) -> Generator[Any, Any, T]:
        journal, entry = self._context.journal, self._entry
        journal.stands(entry)
        entry.lane.take(entry, self._value)
        journal.goes_on(entry)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
        yield  # pragma: no cover - makes this a generator

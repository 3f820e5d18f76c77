"""Records the verbs of a script's process: the rows that a rank of a program would write; torch's own groups do the
work.

Computation between two calls becomes spans of kind "script", labelled by purpose and cut at the same calls and modules
as in the simulator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import Token
from functools import cached_property
from itertools import count
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from real.libraries.nccl import Nccl
from real.rank.journal import STEP, Entry, Journal, Row
from real.rank.lanes import Mark, PendingCall, StreamLane
from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Done
from scenarios.seam.calls import Call
from scenarios.seam.collectives.several import Several
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.workloads.recording.events.work import Label
from scenarios.workloads.script.process.process_group import TorchCall
from scenarios.workloads.script.script_streams import KIND

# A checked call, and the group in which its members meet.
Known: TypeAlias = tuple[Call, Group]


class Underway:
    """A call that torch's own group has begun; its members meet in `group`."""

    __slots__ = ("_journal", "_pending", "entry", "group", "work")

    def __init__(self, journal: Journal, entry: Entry, group: Group, work: dist.Work, pending: PendingCall) -> None:
        self.entry, self.group, self.work = entry, group, work
        self._journal, self._pending = journal, pending

    def wait(self, since: Mark | None = None) -> Mark:
        """Wait as a rank of a program does; return when the wait ends.

        `since` is when the caller began to wait; None: when the call was issued, if not now.
        """
        entry, journal = self.entry, self._journal
        journal.stands(entry)
        try:
            return entry.lane.stand(entry, self._pending, since)
        finally:
            journal.goes_on(entry)

    @property
    def has_ended(self) -> bool:
        """Whether the end of the call is recorded."""
        return self.entry.end is not None

    @property
    def is_waited(self) -> bool:
        """Whether the caller's stream has waited for the call already."""
        return self.entry.wait_until is not None

    def settle(self) -> None:
        """Record the call's end if it has completed: the library's thread may have notified others and not yet this
        object.
        """
        with suppress(RuntimeError):  # no future, or a failed one, whose error the waiting caller gets
            if not self.has_ended and self.work.get_future().done():
                self._pending.wait()

    def __await__(self) -> Generator[Any, Any, None]:
        self.wait()
        return None
        yield  # pragma: no cover - makes this a generator


class _ThreadPlace:
    """A thread's current computation, kept for each thread because hooks' callbacks run on the library's threads."""

    since: Mark | None = None  # start of the computation; None: in a request, or outside of steps
    label = Label(KIND)  # of the computation


class _Threads(threading.local):
    """A computation per thread; autograd's threads on GPUs share the script's, which waits for the backward pass."""

    def __init__(self) -> None:
        self.own = _ThreadPlace()
        self.is_autograds = False


class WatchingBackend:
    """A `Backend` whose verbs are checked and recorded, and executed by the process group that the script calls."""

    stream = "main"

    def __init__(self, journal: Journal, world_size: int, local_world_size: int) -> None:
        self.journal, self.rank = journal, journal.rank
        self.world_size, self.local_world_size = world_size, local_world_size
        self.control_device = torch.device("cpu")
        self.device = torch.device("cuda") if torch.cuda.is_available() else self.control_device
        host, local = divmod(self.rank, local_world_size)
        ranks, first = tuple(range(world_size)), host * local_world_size
        self.world = Group("world", ranks)
        self.intra = Group(f"intra:{host}", ranks[first : first + local_world_size])
        self.cross = Group(f"cross:{local}", ranks[local::local_world_size])
        self._sequence = count()
        self._threads, self._scripts = _Threads(), _ThreadPlace()
        self._main = threading.get_ident()
        self._token: Token[int] | None = None
        self._step = -1
        self._request: tuple[TorchCall, Any, StreamLane, Mark] | None = None
        self.host_lane = StreamLane()  # of calls that the host executes, such as gloo's beside a GPU
        self._underway: list[Underway] = []
        self.has_called = False  # whether the script has called any collective

    @property
    def is_on_gpu(self) -> bool:
        """Whether the script computes on a GPU, whose stream goes on while the host does something else."""
        return self.device.type != "cpu"

    @property
    def now_ns(self) -> int:
        """Host time, in ns."""
        return time.perf_counter_ns()

    @property
    def _here(self) -> _ThreadPlace:
        if threading.get_ident() == self._main:
            return self._scripts
        # On GPUs autograd runs on a thread of its own; torch names a current node only inside a backward pass.
        threads = self._threads
        if not threads.is_autograds:
            threads.is_autograds = torch._C._current_autograd_node() is not None
        return self._scripts if threads.is_autograds else threads.own

    @cached_property
    def lane(self) -> StreamLane:
        """The lane of the script's own stream on its device."""
        if not self.is_on_gpu:
            return StreamLane()
        return Nccl(torch.device("cuda", torch.cuda.current_device())).new_lane(is_main=True)

    def pause(self, *, begins_step: bool = False) -> Mark:
        """End this thread's computation for a request; return the moment at which it ended."""
        here = self._here
        if self.is_on_gpu and self._step < 0 and not begins_step:
            return (
                time.monotonic_ns()
            )  # a mark would initialise CUDA, and a script may choose its device before its first step
        at = self.lane.mark()
        self._record_computation(here, at)
        here.since = None
        return at

    def resume(self, at: Mark) -> None:
        """Begin a computation of this thread at that moment."""
        self._here.since = at if self._step >= 0 else None

    def turn(self, label: Label) -> None:
        """Label the following computation, ending the current one if its label differs."""
        here = self._here
        if label != here.label and here.since is not None:
            at = self.lane.mark()
            self._record_computation(here, at)
            here.since = at
        here.label = label

    def begin(
        self, request: TorchCall, inner: Any, play: Callable[[], Underway], known: Known | None, *, is_hosts: bool
    ) -> Underway:
        """Begin a call of one of torch's groups.

        Args:
            request: the script's call.
            inner: torch's own process group.
            play: makes a checked verb of the call.
            known: the call and group of an earlier equal call, which needs no further check.
            is_hosts: waiting for the call blocks the host, and not a stream of the GPU.
        """
        start, lane = self.pause(), self.host_lane if is_hosts else self.lane
        self._request = request, inner, lane, start if lane is self.lane else lane.mark()
        until = start
        try:
            underway = play() if known is None else self._begin(*known)
            until = underway.entry.wait_until or self.lane.after(start)
        finally:
            self.resume(until)
        return underway

    def wait(self, underway: Underway, *, is_async: bool) -> None:
        """Wait for a call; if it is not asynchronous, the script has computed nothing since it began."""
        until = since = self.pause() if is_async else None
        try:
            until = underway.wait(None if underway.entry.lane is self.host_lane else since)
        finally:
            self.resume(self.lane.mark() if until is None else until)

    def begin_step(self, index: int, start: Mark | None = None) -> Entry:
        """Begin a step: calls issued from now on belong to it. `start`: the end of the step before, if there was no
        gap.
        """
        self._token, self._step = STEP.set(index), index
        entry = Entry(self.lane, self.stream, "step", f"step {index}", sequence=next(self._sequence), start=start)
        entry.wait_from = entry.wait_until = entry.issued
        self.journal.keep(entry, is_awaited=False)
        return entry

    def end_step(self, entry: Entry, at: Mark | None = None) -> None:
        """End the step, at that moment or now."""
        entry.end = self.lane.mark() if at is None else at
        assert self._token is not None, "it has begun"
        STEP.reset(self._token)
        self._step = -1

    def settle(self) -> None:
        """End all calls that no caller has waited for."""
        self.lane.overtakes()
        self.host_lane.overtakes()
        for underway in self._underway:
            underway.settle()
        self.lane.settle()

    def host_work(self, work: HostWork) -> int:
        """Do nothing: the real host does the work itself."""
        return self.now_ns

    def knows(self, group: Group) -> bool:
        """Return True: torch refuses groups that it does not know."""
        return True

    def issue(self, call: Call, group: Group, issue: Issue) -> Underway:
        """Execute a collective on torch's own group."""
        return self._begin(call, group)

    def _begin(self, call: Call, group: Group) -> Underway:
        assert self._request is not None, "a script calls its groups"
        self.has_called = True
        request, inner, lane, start = self._request
        journal = self.journal
        label = call.label or call.op
        entry = Entry(lane, self.stream, call.op, label, sequence=next(self._sequence), start=start, step=self._step)
        entry.call = call
        if group is call.group:
            entry.index = journal.next_call(group.name)
        journal.keep(entry, is_awaited=False)
        name, arguments = request.native
        work = getattr(inner, name)(*arguments) or Several()  # torch returns no work for a call that is over
        follow = lane.follow if request.is_async else lane.follow_awaited
        underway = Underway(journal, entry, group, work, follow(entry, work, None, request))
        if entry.end is None:
            self._underway = [one for one in (*self._underway, underway) if not one.has_ended]
        return underway

    def refuse(self, call: Call, group: Group) -> None:
        """Do nothing: other ranks see that this rank ends."""

    def new_group(self, name: str, ranks: Any) -> Group:
        """Return a group; torch creates its own."""
        return Group(name, tuple(ranks))

    def compute(self, *_: Any) -> Any:
        """Return a finished work: a script's process calls neither this verb nor those assigned below."""
        return Done()

    spawn = step = record = open_stream = after = synchronize = compute

    def _record_computation(self, here: _ThreadPlace, at: Mark) -> None:
        """Record this thread's computation from the last cut to that moment."""
        if here.since is not None:
            self.journal.note(
                ScriptComputation(self.lane, self.stream, here.label, self._step, next(self._sequence), here.since, at)
            )


# The dtype of a kernel about which nothing else is known.
_DTYPE = Kernel(kind=KIND).dtype


class ScriptComputation:
    """A script's computation from one mark on its stream to the next; slots only, because a run has many of them."""

    __slots__ = ("end", "label", "lane", "sequence", "start", "step", "stream")
    kind = "compute"

    def __init__(
        self, lane: StreamLane, stream: str, label: Label, step: int, sequence: int, start: Mark, end: Mark
    ) -> None:
        self.lane, self.stream, self.label, self.step, self.sequence = lane, stream, label, step, sequence
        self.start, self.end = start, end

    def is_finished(self, *, is_last: bool) -> bool:
        """Return whether the device has passed its end, so that it can become a row."""
        return self.lane.is_past(self.end)

    def row(self, rank: int, host: int) -> Row:
        """Return the fields of a `Span`, as `Entry.row`; issue and start are equal, as the script's Python computes."""
        start, end = self.lane.ns(self.start), self.lane.ns(self.end)
        # fmt: off
        return (
            rank, host, self.stream, self.step, self.sequence, "compute", self.label.text, "", -1,
            start, start, max(start, end), start, start, 0, 0, 0, _DTYPE, KIND, 0.0, 0.0, 0.0, 1, -1, 0, 0.0, "",
            self.label.role, "",
        )
        # fmt: on

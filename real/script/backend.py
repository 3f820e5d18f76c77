"""What a script's process notes of each verb: the rows that a rank of ours writes; torch's own groups do the work.

What the script does between two calls are computations of kind "script", by what they are for, as in the simulator,
where the same calls and modules cut them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Token
from functools import cached_property
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from real.libraries.nccl import Nccl
from real.rank.journal import STEP, Entry, Journal
from real.rank.lanes import Lane, Mark, Pending
from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Done
from scenarios.seam.calls import Call
from scenarios.seam.collectives.several import Several
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.process.process_group import Asked
from scenarios.workloads.script.streams import KIND


class Underway:
    """A call that torch's own group has begun."""

    def __init__(self, journal: Journal, entry: Entry, work: dist.Work, pending: Pending) -> None:
        self.work = work
        self._journal, self._entry, self._pending = journal, entry, pending

    def wait(self) -> None:
        """As a rank of ours awaits it."""
        was_over = self._pending.is_over()
        self._journal.wait_begins(self._entry)
        try:
            self._pending.wait()
        finally:
            self._journal.wait_ends(self._entry, has_waited=not was_over)

    @property
    def has_ended(self) -> bool:
        """Whether its end is noted."""
        return self._entry.end is not None

    def settle(self) -> None:
        """Note its end, if it has ended: the library's thread may have told others of that, and not us yet."""
        with suppress(RuntimeError):  # no future, or it failed, of which whoever waits is told
            if not self.has_ended and self.work.get_future().done():
                self._pending.wait()

    def __await__(self) -> Generator[Any, Any, None]:
        self.wait()
        return None
        yield  # pragma: no cover - makes this a generator


class _Here:
    """Where a thread is: callbacks of a hook run on threads of the library's."""

    depth = 0  # of requests
    since: Mark | None = None  # what it computes was cut last
    label = KIND  # of what it computes


class _Threads(threading.local):
    """Each thread's own place; autograd's, on GPUs, have that of the script's, which waits for the backward pass."""

    def __init__(self) -> None:
        self.own = _Here()
        self.is_autograds = False


class WatchingBackend:
    """A `Backend` whose verbs are checked and noted, and begun by the process group that the script has called."""

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
        self._threads, self._scripts = _Threads(), _Here()
        self._main = threading.get_ident()
        self._token: Token[int] | None = None
        self._step = -1
        self._asked: tuple[Asked, Any] | None = None
        self._underway: list[Underway] = []
        self.has_called = False  # any other rank

    @property
    def now_ns(self) -> int:
        """See `Backend.now_ns`."""
        return time.perf_counter_ns()

    @property
    def _here(self) -> _Here:
        threads = self._threads
        if not threads.is_autograds:
            if threading.get_ident() == self._main:
                return self._scripts
            threads.is_autograds = torch._C._current_autograd_node() is not None
        return self._scripts if threads.is_autograds else threads.own

    @cached_property
    def lane(self) -> Lane:
        """What the script's own stream is on its device."""
        if self.device.type == "cpu":
            return Lane()
        return Nccl(torch.device("cuda", torch.cuda.current_device())).new_lane(is_main=True)

    @contextmanager
    def between(self, *, is_cut: bool = True) -> Iterator[None]:
        """A request of the script's: what it has computed since the last one ends here, and the next begins after it.

        `is_cut` is False where it has computed nothing in between.
        """
        here = self._here
        if is_cut and not here.depth:
            self._computed()
        here.depth += 1
        try:
            yield
        finally:
            here.depth -= 1
            here.since = None if self._step < 0 else self.lane.mark()

    def turn(self, label: str) -> None:
        """What the script computes from now on is for that."""
        here = self._here
        if label != here.label and not here.depth:
            here.since = self._computed()
        here.label = label

    @contextmanager
    def asked(self, asked: Asked, inner: Any) -> Iterator[None]:
        """What is issued inside is that call, of that group of torch's."""
        self._asked = asked, inner
        try:
            yield
        finally:
            self._asked = None

    def begin_step(self, index: int) -> Entry:
        """What is issued from now on belongs to it."""
        self._token, self._step = STEP.set(index), index
        entry = Entry(self.lane, self.stream, "step", f"step {index}", sequence=next(self._sequence))
        entry.wait_from = entry.wait_until = entry.issued
        self.journal.keep(entry, is_awaited=False)
        return entry

    def end_step(self, entry: Entry) -> None:
        """It is over."""
        entry.end = self.lane.mark()
        assert self._token is not None, "it has begun"
        STEP.reset(self._token)
        self._step = -1

    def settle(self) -> None:
        """What nobody has waited for ends now, at the latest."""
        self.lane.overtakes()
        for underway in self._underway:
            underway.settle()
        self.lane.settle()

    def host_work(self, work: HostWork) -> int:
        """See `Backend.host_work`: a real host does it anyway."""
        return self.now_ns

    def knows(self, group: Group) -> bool:
        """See `Backend.knows`; torch knows its own."""
        return True

    def issue(self, call: Call, group: Group, issue: Issue) -> Underway:
        """See `Backend.issue`."""
        assert self._asked is not None, "a script calls its groups"
        self.has_called = True
        asked, inner = self._asked
        entry = Entry(self.lane, self.stream, call.op, call.label or call.op, sequence=next(self._sequence))
        entry.step = self._step  # also on threads of autograd's
        entry.call = call
        if group is call.group:
            entry.index = self.journal.next_call(group.name)
        self.journal.keep(entry)
        name, given = asked.native
        work = getattr(inner, name)(*given) or Several()  # a call without a work is over
        underway = Underway(self.journal, entry, work, self.lane.follow(entry, work, None, issue))
        self._underway = [one for one in (*self._underway, underway) if not one.has_ended]
        return underway

    def refuse(self, call: Call, group: Group) -> None:
        """See `Backend.refuse`; the others see this rank's end."""

    def new_group(self, name: str, ranks: Any) -> Group:
        """See `Backend.new_group`; torch makes it."""
        return Group(name, tuple(ranks))

    def compute(self, *_: Any) -> Any:
        """See `Backend.compute`; no call of a script's is this verb, nor those below."""
        return Done()

    spawn = step = record = open_stream = after = synchronize = compute

    def _computed(self) -> Mark | None:
        """Note what this thread has computed since the last cut; until when."""
        here = self._here
        if here.since is None:
            return None
        entry = Entry(self.lane, self.stream, "compute", here.label, sequence=next(self._sequence))
        entry.kernel, entry.start, entry.step = Kernel(kind=KIND), here.since, self._step
        if isinstance(here.since, int):
            entry.issued = here.since
        entry.wait_from = entry.wait_until = entry.issued
        entry.end = self.lane.mark()
        self.journal.keep(entry, is_awaited=False)
        return entry.end

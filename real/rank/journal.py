"""The operations, waits and metrics of one rank, as plain rows.

Verbs only append here: no I/O, no locks but the deque's. `take` hands over finished rows.
"""

from __future__ import annotations

import dataclasses
import heapq
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from contextvars import ContextVar
from itertools import count
from typing import Any, Protocol

from real.rank.lanes import Mark, Reading, StreamLane
from real.supervise.rank_status import JOINING
from scenarios.seam.calls import Call
from scenarios.seam.kernel import Kernel, PricedLater, price_now
from scenarios.seam.operations.as_json import text_of
from scenarios.seam.roles import NO_PURPOSE
from scenarios.seam.trace import Metric, Span

# Training step of a coroutine; spawned coroutines inherit it.
STEP: ContextVar[int] = ContextVar("step", default=-1)

Row = tuple[Any, ...]
_SPAN_FIELDS = tuple(field.name for field in dataclasses.fields(Span))
_KERNELS_CALL = Call(op="", group=None, rank=-1)  # type: ignore[arg-type]
_NO_KERNEL = Kernel(kind="", dtype="")


class Entry:
    """A span under construction; marks may be events that the device has not passed yet."""

    __slots__ = (
        "call",
        "end",
        "index",
        "issued",
        "kernel",
        "kind",
        "label",
        "lane",
        "purpose",
        "sequence",
        "start",
        "step",
        "stream",
        "wait_from",
        "wait_until",
    )

    def __init__(
        self,
        lane: StreamLane,
        stream: str,
        kind: str,
        label: str,
        *,
        sequence: int = -1,
        start: Mark | None = None,
        step: int | None = None,
    ) -> None:
        """Create the entry; `start` defaults to now, `step` to the caller's step."""
        lane.overtakes()
        self.lane, self.stream, self.kind, self.label, self.sequence = lane, stream, kind, label, sequence
        self.step = STEP.get() if step is None else step
        self.index = -1
        self.call: Call | None = None
        self.kernel: PricedLater | None = None
        self.purpose = NO_PURPOSE
        self.issued = time.monotonic_ns()
        self.start: Mark = lane.mark() if start is None else start
        self.end: Mark | None = None
        self.wait_from: Mark | None = None
        self.wait_until: Mark | None = None

    @property
    def name(self) -> str:
        """Operation and label, as error messages name them."""
        return self.kind if self.label in ("", self.kind) else f"{self.kind} '{self.label}'"

    @property
    def queue(self) -> str:
        """Queue that serves a call: a group's calls run in order, and so do its messages to or from one rank."""
        assert self.call is not None, "kernels are in no library's queue"
        group = self.call.group.name
        return group if self.index >= 0 else f"{group}: {self.call.op} {self.call.root}"

    def describe(self) -> str:
        """Return the operation and where it was issued, for error messages."""
        return f"{self.name} on stream {self.stream}" + (f" in step {self.step}" if self.step >= 0 else "")

    def is_finished(self, *, is_last: bool) -> bool:
        """Return whether the span can become a row; at the end (`is_last`) also if it was never awaited."""
        if self.end is None or (self.wait_until is None and not is_last):
            return False
        lane = self.lane
        return lane.is_past(self.end) and (self.wait_until is None or lane.is_past(self.wait_until))

    def row(self, rank: int, host: int) -> Row:
        """Return the fields of a `Span`, in order, with times of this host's clock."""
        ns, call, kernel = self.lane.ns, self.call or _KERNELS_CALL, price_now(self.kernel or _NO_KERNEL)
        operation = kernel.only_operation
        assert self.end is not None, "only what has ended becomes a row"
        start, end = max(self.issued, ns(self.start)), ns(self.end)
        wait_from, wait_until = self.wait_from, self.wait_until
        waited = (-1, -1) if wait_from is None or wait_until is None else (ns(wait_from), ns(wait_until))
        # fmt: off
        return (
            rank, host, self.stream, self.step, self.sequence, self.kind, self.label,
            call.group.name if self.call else "", self.index,
            self.issued, start, max(start, end), waited[0], waited[1],
            call.bytes_in, call.bytes_out, call.bytes_sent, call.dtype or kernel.dtype,
            kernel.kind, kernel.flops, kernel.bytes_read, kernel.bytes_written, 1, -1, 0, kernel.recomputed_flops,
            "" if operation is None else text_of((operation,)), *(call if self.call else self).purpose,
        )
        # fmt: on


class Making(Protocol):
    """A span under construction."""

    step: int

    @property
    def kind(self) -> str: ...

    def is_finished(self, *, is_last: bool) -> bool:
        """Return whether the span can become a row; at the end (`is_last`) also if it was never awaited."""
        ...

    def row(self, rank: int, host: int) -> Row:
        """Return the fields of a `Span`, in order, with times of this host's clock."""
        ...


class Journal:
    """A record of one rank: its operations, metrics and waits."""

    def __init__(self, rank: int, host: int, world_size: int) -> None:
        self.rank, self.host = rank, host
        self.others = tuple(other for other in range(world_size) if other != rank)
        self.moves = 0
        self.last: Entry | None = None
        # Several at a time: a spawned coroutine's call, and whoever awaits the spawn.
        self.waiting: dict[Entry, None] = {}
        self.unawaited: dict[Entry, None] = {}
        self._entries: deque[Making] = deque()
        self._metrics: deque[tuple[int, str, float | Reading]] = deque()
        self._calls: defaultdict[str, count[int]] = defaultdict(count)
        self.reached: dict[str, int] = {}
        self.stage = JOINING
        # Position as `control_channel.position` gives it, if the program runs in another process.
        self.elsewhere: dict[str, Any] | None = None
        self._taken_over: tuple[list[Row], list[Row]] = [], []

    def next_call(self, group: str) -> int:
        """Return how many calls this rank issued on this group before, and count this one."""
        index = next(self._calls[group])
        self.reached[group] = index + 1
        return index

    def keep(self, entry: Entry, *, is_awaited: bool = True) -> None:
        """Add an entry that becomes a span, and must be awaited if it is a verb's."""
        self._entries.append(entry)
        self.note_issue(entry, is_awaited=is_awaited)

    def note(self, made: Making) -> None:
        """Add a span under construction without making it this rank's current operation, which error messages name."""
        self.moves += 1
        self._entries.append(made)

    def note_issue(self, entry: Entry, *, is_awaited: bool = True) -> None:
        """Register an operation that must be awaited but becomes no span (a spawned coroutine)."""
        self.moves += 1
        self.last = entry
        if is_awaited:
            self.unawaited[entry] = None

    def stands(self, entry: Entry) -> None:
        """Record that the program waits in `await`; the entry's lane records the times."""
        self.unawaited.pop(entry, None)
        self.waiting[entry] = None

    def goes_on(self, entry: Entry) -> None:
        """Record that the program continues after waiting for the entry."""
        self.waiting.pop(entry, None)
        self.moves += 1

    def wait_begins(self, entry: Entry) -> None:
        """Record that the program waits from now on, for something other than a lane."""
        self.stands(entry)
        entry.wait_from = entry.lane.mark()

    def wait_ends(self, entry: Entry, *, has_waited: bool) -> None:
        """Record that the program continues after `wait_begins`."""
        entry.wait_until = entry.lane.mark() if has_waited else entry.wait_from
        self.goes_on(entry)

    def record(self, name: str, value: float | Reading) -> None:
        """Record a metric of the current step; a number that a device is still computing is read later."""
        self._metrics.append((STEP.get(), name, value))

    def give_up(self, step: Entry) -> None:
        """Take a step out of the run: its operations belong to no step, its metrics are dropped."""
        number, kept = step.step, [each for each in self._entries if each is not step]
        for each in kept:
            if each.step == number:
                each.step = -1
        self._entries = deque(kept)
        self._metrics = deque(each for each in self._metrics if each[0] != number)

    def queued_entries(self) -> list[Entry]:
        """Return operations that the device has not ended yet, in issue order; none on a CPU."""
        if self.last is None or isinstance(self.last.start, int):
            return []
        entries = [each for each in list(self._entries) if isinstance(each, Entry) and each.kind != "step"]
        return [entry for entry in entries if entry.end is not None and not entry.lane.is_past(entry.end)]

    def take_over(self, spans: Iterable[Row], metrics: Iterable[Row]) -> None:
        """Add rows of another process's journal."""
        for own, taken in zip(self._taken_over, (spans, metrics), strict=True):
            own.extend(taken)

    def take(self, *, is_last: bool = False) -> tuple[list[Row], list[Row]]:
        """Return finished rows of spans and metrics, and keep the others."""
        rows, metrics = self._taken_over
        self._taken_over = [], []
        unfinished = []
        # As many as there are now, one by one: iterating a deque to which another thread appends raises.
        for _ in range(len(self._entries)):
            entry = self._entries.popleft()
            if entry.is_finished(is_last=is_last):
                rows.append(entry.row(self.rank, self.host))
            else:
                unfinished.append(entry)
        # Back at the front, in their old order: verbs of other threads may have appended meanwhile.
        self._entries.extendleft(reversed(unfinished))
        for _ in range(len(self._metrics)):
            step, name, value = self._metrics.popleft()
            if isinstance(value, float):
                metrics.append((self.rank, step, name, value))
            elif value.is_past():
                metrics.append((self.rank, step, name, value.value()))
            else:
                self._metrics.append((step, name, value))
        return rows, metrics


def span(row: Row) -> Span:
    """Return a row as a `Span`."""
    return Span(**dict(zip(_SPAN_FIELDS, row, strict=True)))


def metric(row: Row) -> Metric:
    """Return a row as a `Metric`."""
    rank, step, name, value = row
    return Metric(rank=rank, step=step, name=name, value=value)


def with_true_starts(spans: Iterable[Span], lanes: int) -> list[Span]:
    """Return spans with the true start of each collective, ordered by rank, issue time and stream.

    A process group serves its calls in order with `lanes` workers, so a call enters when it was issued or when a worker
    becomes free, whichever is later. The time of entry is unknown when the call is issued, but follows from the ends.
    """
    free: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * lanes)
    started = []
    for item in sorted(spans, key=lambda span: (span.rank, span.group, span.call)):
        if item.call < 0:
            started.append(item)
            continue
        # A heap of the times at which the workers become free; the first is the next one free.
        workers = free[item.rank, item.group]
        start = min(max(item.start_ns, workers[0]), item.end_ns)
        heapq.heapreplace(workers, item.end_ns)
        started.append(item if start == item.start_ns else dataclasses.replace(item, start_ns=start))
    return sorted(started, key=lambda span: (span.rank, span.issued_ns, span.stream, span.sequence))

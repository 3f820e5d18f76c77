"""Maps the streams of a script's GPU to streams of a simulated rank."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any, cast

from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Work
from scenarios.seam.host_work import HostWork, total
from scenarios.seam.kernel import Kernel, together
from scenarios.seam.rank import Rank
from scenarios.workloads.recording.events.waits import (
    Elapsed,
    HostWait,
    Query,
    Sleep,
    Synchronize,
    SynchronizeCall,
    SynchronizeEvent,
)
from scenarios.workloads.recording.events.work import LaunchKernel, OnStream, RecordEvent, WaitEvent
from scenarios.workloads.recording.packed import nothing
from scenarios.workloads.script.meeting.stores import Meeting

# The host's time for a poll, of the order of a CUDA driver call; more than zero, so that polling loops end.
_POLL_NS = 1_000
# The kind and label of a script's computation in reports.
KIND = "script"


class ScriptStreams:
    """The streams of a script's GPU, each a sibling of the rank; stream 0 is the rank itself.

    A position in a stream is the last works that the stream was given.
    """

    def __init__(self, rank: Rank, scenario: Scenario) -> None:
        self._ranks, inside = {0: rank}, scenario.cluster.host.inside
        # If the rate of the path to the host's memory is unknown, copies over it take as long as on the GPU.
        self._has_host_path = inside.host_bytes_per_s is not None or inside.kind in ("pcie", "memory")
        self._tails: dict[int, tuple[Work[Any], ...]] = {}
        self._events: dict[int, tuple[Work[Any], ...]] = {}
        self._recorded_ns: dict[int, int] = {}  # when the host recorded an event
        self._kernels: dict[Work[Any], None] = {}  # not yet awaited, in order

    def of(self, number: int) -> Rank:
        """Return the rank on a stream, opening the stream if it is new."""
        if number not in self._ranks:
            backend = cast(Meeting, self._ranks[0].backend)
            self._ranks[number] = Rank(backend.open_own_stream(f"stream {number}"))
        return self._ranks[number]

    def launch(self, launched: Iterable[OnStream | HostWork]) -> None:
        """Launch a script's items on its streams, in order; consecutive kernels of one stream and label become one."""
        before = list[HostWork]()  # the host's work before the next launch
        for is_kernels, group in groupby(_with_host_work(launched), _kind):
            launches = list[LaunchKernel]()
            for works, each in group:
                before += works
                if isinstance(each, LaunchKernel):
                    launches.append(each)
                elif each is not None:
                    self._meet(each)
            if is_kernels:
                self._compute(launches, before)
                before = []
        if before:
            self._ranks[0].host_work(total(before))

    def after(self, number: int, work: Work[Any]) -> None:
        """Make a stream wait for a work."""
        self.of(number).after(work)
        self._tails[number] = (*self.tail(number), work)

    def tail(self, number: int) -> tuple[Work[Any], ...]:
        """Return a stream's position: its last work, with the works that it waits for."""
        return self._tails.get(number, ())

    def tails(self) -> list[Work[Any]]:
        """Return the positions of all streams."""
        return list(dict.fromkeys(work for number in self._tails for work in self.tail(number)))

    def until(self, event: int) -> tuple[Work[Any], ...]:
        """Return the position of an event's stream at the time when the event was recorded."""
        return self._events.get(event, ())

    async def wait(self, request: HostWait, calls: Mapping[int, Work[Any]], on_host: Collection[int]) -> int | None:
        """Make the host wait as requested; return the request's answer.

        Args:
            request: the wait.
            calls: pending calls by number.
            on_host: numbers of calls that run on the host, for which a wait for the whole GPU does not wait.

        Returns:
            The ns between two events, whether polled work is over, or the ns of a sleep; None for other waits.
        """
        match request:
            case Sleep(sleep_ns):
                await self._sleep_until(self._ranks[0].backend.now_ns + sleep_ns)
                return sleep_ns
            case Elapsed(first, second):
                return await self.elapsed_ns(first, second)
            case Query(polled, number):
                known = {"event": self.until, "stream": self.tail}
                return await self._are_over(known[polled](number) if polled in known else _of_call(calls, number))
            case SynchronizeEvent(number):
                works: Iterable[Work[Any]] = self.until(number)
            case SynchronizeCall(number):
                works = _of_call(calls, number)
            case Synchronize(None):
                of_gpu = (work for number, work in calls.items() if number not in on_host)
                works = (*self.tails(), *of_gpu)
            case Synchronize(int(stream)):
                works = self.tail(stream)
        await self.synchronize(works)
        return None

    async def synchronize(self, works: Iterable[Work[Any]]) -> None:
        """Make the host wait for these works; later launches follow from then."""
        for work in works:
            self._kernels.pop(work, None)
            await self._ranks[0].synchronize(work)

    async def _sleep_until(self, until_ns: int) -> None:
        host = self._ranks[0]
        await host.synchronize(cast(Meeting, host.backend).sleep(until_ns))

    async def _are_over(self, works: Sequence[Work[Any]]) -> bool:
        """Let the host spend the time of a poll; return whether the works are over then."""
        host = self._ranks[0]
        least_ns = host.backend.now_ns + _POLL_NS
        until_ns = max(least_ns, host.host_work(HostWork(waits_ns=_POLL_NS)))
        await self._sleep_until(until_ns)
        return all(getattr(work, "end_ns", 0) >= 0 for work in works)  # -1 while a work of the simulator's runs

    async def elapsed_ns(self, first: int, second: int) -> int:
        """Wait for two events; return the ns between the GPU's reaching the first and the second."""
        await self.synchronize([*self.until(first), *self.until(second)])
        return self._reached_ns(second) - self._reached_ns(first)

    def _reached_ns(self, event: int) -> int:
        """Return when the GPU reached an event: at its stream's position then, not before the host recorded it."""
        ends_ns = [getattr(work, "end_ns", 0) for work in self.until(event)]  # of the simulator's works
        return max([self._recorded_ns.get(event, 0), *ends_ns])

    async def settle(self) -> None:
        """Wait until all launched kernels have ended."""
        while self._kernels:
            work = next(iter(self._kernels))
            del self._kernels[work]
            await work

    def _compute(self, launches: Sequence[LaunchKernel], host: Sequence[HostWork]) -> None:
        first, kernels = launches[0], [each.kernel for each in launches]
        if not self._has_host_path:
            kernels = [replace(each, host_read=0.0, host_written=0.0) for each in kernels]
        kernel = kernels[0] if len(kernels) == 1 else _together(tuple(kernels))
        if host:
            kernel = replace(kernel, host=total(host))
        work = self.of(first.stream).compute(kernel, nothing, label=first.label or KIND, role=first.role)
        self._kernels[work] = None
        self._tails[first.stream] = (work,)

    def _meet(self, event: RecordEvent | WaitEvent) -> None:
        if isinstance(event, RecordEvent):
            # The position now: what the stream is given later is not behind the event.
            self._events[event.number] = self.tail(event.stream)
            self._recorded_ns[event.number] = self._ranks[0].backend.now_ns
        elif event.number in self._events:
            own = self.tail(event.stream)
            # Works that the stream has behind it already need no second wait.
            new = [work for work in self._events[event.number] if work not in own]
            for work in new:
                self.of(event.stream).after(work)
            self._tails[event.stream] = (*own, *new)


@lru_cache(maxsize=1 << 14)
def _together(kernels: tuple[Kernel, ...]) -> Kernel:
    """Combine kernels into one; cached, as ranks and steps launch the same kernels."""
    return together(kernels)


def _with_host_work(launched: Iterable[OnStream | HostWork]) -> Iterator[tuple[Sequence[HostWork], OnStream | None]]:
    """Yield each launched item with the host's work before it; remaining host work comes last, with None."""
    works: list[HostWork] = []
    for each in launched:
        if isinstance(each, HostWork):
            works.append(each)
        else:
            yield works, each
            works = []
    if works:
        yield works, None


def _of_call(calls: Mapping[int, Work[Any]], number: int) -> list[Work[Any]]:
    """Return the work of a call; nothing if the script has already waited for the call."""
    return [calls[number]] if number in calls else []


def _kind(given: tuple[Sequence[HostWork], OnStream | None]) -> tuple[int, str] | None:
    """Return a key that groups kernels to combine: stream and label; None for other items."""
    launched = given[1]
    return (launched.stream, launched.label) if isinstance(launched, LaunchKernel) else None

"""The streams of a script's GPU as those of a simulated rank."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Protocol, cast

from scenarios.config.scenario import Scenario
from scenarios.seam.backend import Backend, Work
from scenarios.seam.host_work import HostWork, total
from scenarios.seam.kernel import Kernel, together
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS, OPTIMIZER, ROWS
from scenarios.workloads.script.events.waits import (
    Elapsed,
    HostWait,
    Query,
    Sleep,
    Synchronize,
    SynchronizeCall,
    SynchronizeEvent,
)
from scenarios.workloads.script.events.work import LaunchKernel, OnStream, RecordEvent, WaitEvent

# What a look at an event takes the host, of the order of a call of CUDA's driver: a loop of polls ends.
_POLL_NS = 1_000
# What is computed of a script, in reports.
KIND = "script"
# How names of what a script computes for, which are all that its process tells, end or what is in them: optimizers' as
# `process.labels` makes them of their class, those of parts of TorchRec's sharded modules.
_OF_OPTIMIZER = "step"
_OF_PARTS = {"_input_dists": IDS, "_output_dists": ROWS}


def cpu_flops_per_s(scenario: Scenario) -> float:
    """Return what a script computes in a second of CPU time on a scenario's hardware."""
    gpu = scenario.cluster.host.gpu
    return gpu.flops_per_s["float32"] * gpu.efficiency.get(KIND, gpu.efficiency.get("default", 1.0))


@lru_cache(maxsize=1 << 14)
def role_of(label: str) -> str:
    """Return the role of what a script computes for a module, an optimizer or one of its lines; "" for none."""
    parts = label.split(".")
    if parts[1:] == [_OF_OPTIMIZER] and parts[0].lstrip("_")[:1].isupper():  # "decoder.step" is a module
        return OPTIMIZER
    return next((_OF_PARTS[one] for one in parts if one in _OF_PARTS), "")


class Simulated(Protocol):
    """A backend whose ranks can let simulated time pass, and have streams that other ranks lack: the simulator's."""

    def open_own_stream(self, name: str) -> Backend:
        """Return this rank on another stream, whose own groups nobody uses."""
        ...

    def sleep(self, until_ns: int) -> Work[Any]:
        """Return a work that is over at that time."""
        ...


class ScriptStreams:
    """Each a sibling of the rank, the main one the rank itself; a position in one is what it was given last."""

    def __init__(self, rank: Rank, scenario: Scenario) -> None:
        self._ranks, inside = {0: rank}, scenario.cluster.host.inside
        # Without its rate, copies over a GPU's path to its host's memory take as long as on the GPU.
        self._has_host_path = inside.host_bytes_per_s is not None or inside.kind in ("pcie", "memory")
        self._tails: dict[int, tuple[Work[Any], ...]] = {}
        self._events: dict[int, tuple[Work[Any], ...]] = {}
        self._recorded_ns: dict[int, int] = {}  # when the host recorded an event
        self._kernels: dict[Work[Any], None] = {}  # that are to be awaited, in order

    def of(self, number: int) -> Rank:
        """The rank on that stream."""
        if number not in self._ranks:
            backend = cast(Simulated, self._ranks[0].backend)
            self._ranks[number] = Rank(backend.open_own_stream(f"stream {number}"))
        return self._ranks[number]

    def launch(self, launched: Iterable[OnStream | HostWork]) -> None:
        """Give the streams what a script has given them, in its order; kernels in a row for the same are one."""
        before = list[HostWork]()  # what is launched next
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
        """Let that stream go on after a work."""
        self.of(number).after(work)
        self._tails[number] = (*self.tail(number), work)

    def tail(self, number: int) -> tuple[Work[Any], ...]:
        """What that stream was given last, with what it waits for."""
        return self._tails.get(number, ())

    def tails(self) -> list[Work[Any]]:
        """What all streams were given last."""
        return list(dict.fromkeys(work for number in self._tails for work in self.tail(number)))

    def until(self, event: int) -> tuple[Work[Any], ...]:
        """What its stream had been given last, with what it waited for, when an event was recorded."""
        return self._events.get(event, ())

    async def wait(self, request: HostWait, calls: Mapping[int, Work[Any]], on_host: Collection[int]) -> int | None:
        """Have the host wait as a request asks: all that a GPU is at are its streams, and those of `calls` that are not
        `on_host`. Return the ns between two events, whether what is looked at is over, or the ns that a script sleeps.
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
        """The host waits for these, and launches on from then."""
        for work in works:
            self._kernels.pop(work, None)
            await self._ranks[0].synchronize(work)

    async def _sleep_until(self, until_ns: int) -> None:
        host = self._ranks[0]
        await host.synchronize(cast(Simulated, host.backend).sleep(until_ns))

    async def _are_over(self, works: Sequence[Work[Any]]) -> bool:
        """Have the host take as long as a look at works does; return whether they are over then."""
        host = self._ranks[0]
        least_ns = host.backend.now_ns + _POLL_NS
        until_ns = max(least_ns, host.host_work(HostWork(waits_ns=_POLL_NS)))
        await self._sleep_until(until_ns)
        return all(getattr(work, "end_ns", 0) >= 0 for work in works)  # -1 while a work of the simulator's runs

    async def elapsed_ns(self, first: int, second: int) -> int:
        """Wait for two events; return how long after the first one the GPU reached the second."""
        await self.synchronize([*self.until(first), *self.until(second)])
        return self._reached_ns(second) - self._reached_ns(first)

    def _reached_ns(self, event: int) -> int:
        """Return when the GPU reached an event: where its stream had come to, and not before the host recorded it."""
        ends_ns = [getattr(work, "end_ns", 0) for work in self.until(event)]  # of the simulator's works
        return max([self._recorded_ns.get(event, 0), *ends_ns])

    async def settle(self) -> None:
        """Until all has ended that was launched."""
        while self._kernels:
            work = next(iter(self._kernels))
            del self._kernels[work]
            await work

    def _compute(self, launches: Sequence[LaunchKernel], host: Sequence[HostWork]) -> None:
        number, label, kernels = launches[0].stream, launches[0].label, [each.kernel for each in launches]
        if not self._has_host_path:
            kernels = [replace(each, host_read=0.0, host_written=0.0) for each in kernels]
        kernel = kernels[0] if len(kernels) == 1 else _together(tuple(kernels))
        if host:
            kernel = replace(kernel, host=total(host))
        work = self.of(number).compute(kernel, nothing, label=label or KIND, role=role_of(label))
        self._kernels[work] = None
        self._tails[number] = (work,)

    def _meet(self, event: RecordEvent | WaitEvent) -> None:
        if isinstance(event, RecordEvent):
            self._events[event.number] = self.tail(event.stream)
            self._recorded_ns[event.number] = self._ranks[0].backend.now_ns
        elif event.number in self._events:
            own = self.tail(event.stream)
            new = [work for work in self._events[event.number] if work not in own]
            for work in new:
                self.of(event.stream).after(work)
            self._tails[event.stream] = (*own, *new)


@lru_cache(maxsize=1 << 14)
def _together(kernels: tuple[Kernel, ...]) -> Kernel:
    """Return one kernel made of others, the same one for all ranks and steps that launch these."""
    return together(kernels)


def _with_host_work(launched: Iterable[OnStream | HostWork]) -> Iterator[tuple[Sequence[HostWork], OnStream | None]]:
    """Yield what was launched, each with the host's work before it; what is left comes last, with nothing."""
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
    """Return the work of a call; none if the script has waited for the call."""
    return [calls[number]] if number in calls else []


def _kind(given: tuple[Sequence[HostWork], OnStream | None]) -> tuple[int, str] | None:
    """Return what kernels have in common that are one; None for all else."""
    launched = given[1]
    return (launched.stream, launched.label) if isinstance(launched, LaunchKernel) else None


def nothing() -> None:
    """Do nothing: what is computed is computed elsewhere, or nowhere."""

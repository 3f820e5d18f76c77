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
from scenarios.workloads.script.requests import Launched

# What a look at an event takes the host, of the order of a call of CUDA's driver: a loop of polls ends.
_POLL_NS = 1_000
# What is computed of a script, in reports.
KIND = "script"
# How names of what a script computes for, which are all that its process tells, end or what is in them: optimizers' as
# `process.labels` makes them, those of parts of TorchRec's sharded modules.
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
    return OPTIMIZER if parts[-1] == _OF_OPTIMIZER else next((_OF_PARTS[one] for one in parts if one in _OF_PARTS), "")


class Simulated(Protocol):
    """A backend whose ranks can let simulated time pass, and have streams that other ranks lack: the simulator's."""

    def open_own_stream(self, name: str) -> Backend:
        """Return this rank on another stream, whose own groups nobody uses."""
        ...

    def sleep(self, until_ns: int) -> Work[Any]:
        """Return a work that is over at that time."""
        ...


class Streams:
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

    def launch(self, launched: Iterable[Launched | HostWork]) -> None:
        """Give the streams what a script has given them, in its order; kernels in a row for the same are one."""
        before = list[HostWork]()  # what is launched next
        for (number, is_kernel, label), group in groupby(_with_host_work(launched), _kind):
            if is_kernel:
                each = list(group)
                before += (work for works, _ in each for work in works)
                self._compute(number, [one for _, one in each if one is not None], label, before)
                before = []
            else:
                for works, event in group:
                    before += works
                    if event is not None:
                        self._meet(number, event)
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

    async def wait(
        self, kind: str, argument: Any, calls: Mapping[int, Work[Any]], on_host: Collection[int]
    ) -> int | None:
        """Have the host wait as a request asks: for a stream, for all that a GPU is at with those of these `calls` that
        are not `on_host`, for what a stream was given before an event, for a call, for two events, whose distance in ns
        is returned, or for as long as a look at an event, a stream or a call takes, with whether that is over. Or for a
        time in which the script sleeps, which is returned.
        """
        if kind == "sleep":
            await self._sleep_until(self._ranks[0].backend.now_ns + argument)
            return int(argument)
        if kind == "elapsed":
            return await self.elapsed_ns(*argument)
        if kind == "query":
            polled, number = argument
            known = {"event": self.until, "stream": self.tail}
            return await self._are_over(known[polled](number) if polled in known else _of_call(calls, number))
        if kind == "synchronize_event":
            works: Iterable[Work[Any]] = self.until(argument)
        elif kind == "synchronize_call":
            works = _of_call(calls, argument)
        else:
            of_gpu = (work for number, work in calls.items() if number not in on_host)
            works = (*self.tails(), *of_gpu) if argument is None else self.tail(argument)
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

    def _compute(self, number: int, launched: Sequence[Launched], label: str, host: Sequence[HostWork]) -> None:
        kernels = [each.kernel for each in launched if each.kernel is not None]
        if not self._has_host_path:
            kernels = [replace(each, host_read=0.0, host_written=0.0) for each in kernels]
        kernel = kernels[0] if len(kernels) == 1 else _together(tuple(kernels))
        if host:
            kernel = replace(kernel, host=total(host))
        work = self.of(number).compute(kernel, nothing, label=label or KIND, role=role_of(label))
        self._kernels[work] = None
        self._tails[number] = (work,)

    def _meet(self, number: int, event: Launched) -> None:
        if event.record is not None:
            self._events[event.record] = self.tail(number)
            self._recorded_ns[event.record] = self._ranks[0].backend.now_ns
        elif event.wait in self._events:
            own = self.tail(number)
            new = [work for work in self._events[event.wait] if work not in own]
            for work in new:
                self.of(number).after(work)
            self._tails[number] = (*own, *new)


@lru_cache(maxsize=1 << 14)
def _together(kernels: tuple[Kernel, ...]) -> Kernel:
    """Return one kernel made of others, the same one for all ranks and steps that launch these."""
    return together(kernels)


def _with_host_work(
    launched: Iterable[Launched | HostWork],
) -> Iterator[tuple[Sequence[HostWork], Launched | None]]:
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


def _kind(given: tuple[Sequence[HostWork], Launched | None]) -> tuple[int, bool, str]:
    launched = given[1]
    return (0, False, "") if launched is None else (launched.stream, launched.kernel is not None, launched.label)


def nothing() -> None:
    """Do nothing: what is computed is computed elsewhere, or nowhere."""

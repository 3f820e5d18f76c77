"""A world without time: ranks are coroutines of one process, and a collective is done when all members have issued it.

Calls are checked as in both worlds; outputs are poisoned until then. Turns go round, or to a rank or spawned coroutine
that a seeded generator draws, so that nothing rests on one interleaving.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.backend import Backend, Work
from scenarios.seam.calls import Call
from scenarios.seam.collectives import COLLECTIVES, deliver, disagreement, rooted
from scenarios.seam.errors import CollectiveError, DeadlockError
from scenarios.seam.group import Group
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel, PricedLater, price_now
from scenarios.seam.payload import Payloads
from scenarios.seam.rank import Rank
from scenarios.seam.roles import NO_PURPOSE, Purpose
from sim.rank.reduction import in_group_order

LAPS_WITHOUT_PROGRESS = 10_000


@dataclass(eq=False)
class LockstepWork:
    """Something issued; `done` once every member has come."""

    result: Any = None
    done: bool = False
    awaited: bool = False

    def __await__(self) -> Generator[None, None, Any]:
        assert not self.awaited, "awaited twice"
        self.awaited = True
        while True:  # others may always come first, even where nothing is to be waited for
            yield
            if self.done:
                return self.result


class Rendezvous:
    """One collective: what each member called it with."""

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}
        self.payloads = Payloads(in_group_order)
        self.works: list[LockstepWork] = []

    def settle(self) -> None:
        sentence = disagreement(self.calls)
        if sentence:
            raise CollectiveError(sentence)
        for call in self.calls.values():
            deliver(call, self.payloads)
        for work in self.works:
            work.done = True


@dataclass
class Lockstep:
    """What all ranks share, and what they have issued: `payload` is the device of their tensors."""

    hosts: int
    local_world_size: int
    payload: str = "cpu"
    seed: int | None = None
    calls: list[Call] = field(default_factory=list)
    kernels: list[tuple[int, str, Kernel]] = field(default_factory=list)
    records: list[tuple[int, int, str, float]] = field(default_factory=list)
    works: list[LockstepWork] = field(default_factory=list)
    rendezvous: dict[tuple[str, int], Rendezvous] = field(default_factory=dict)
    tasks: list[tuple[Coroutine[Any, Any, Any], Callable[[Any], None]]] = field(default_factory=list)

    @property
    def world_size(self) -> int:
        return self.hosts * self.local_world_size

    @property
    def log(self) -> dict[int, list[Call]]:
        """Calls by rank, without the one thing that payloads with and without values differ in."""
        found: dict[int, list[Call]] = {rank: [] for rank in range(self.world_size)}
        for call in self.calls:
            found[call.rank].append(replace(call, device=""))
        return found

    @property
    def kernels_by_rank(self) -> dict[int, list[tuple[str, Kernel]]]:
        found: dict[int, list[tuple[str, Kernel]]] = {rank: [] for rank in range(self.world_size)}
        for rank, label, kernel in self.kernels:
            found[rank].append((label, kernel))
        return found

    def run(self, program: Callable[[Rank], Coroutine[Any, Any, Any]], *, all_awaited: bool = True) -> list[Any]:
        """Return what the program gives on each rank.

        Raises:
            DeadlockError: nobody can go on.
            CollectiveError: calls do not fit together.
        """
        results: list[Any] = [None] * self.world_size
        for rank in range(self.world_size):

            def finish(result: Any, rank: int = rank) -> None:
                results[rank] = result

            self.tasks.append((program(Rank(LockstepBackend(self, rank))), finish))
        try:
            self._take_turns()
        finally:
            for coroutine, _ in self.tasks:
                coroutine.close()
        assert not self.rendezvous
        assert not all_awaited or all(work.awaited for work in self.works), "a work was never awaited"
        return results

    def _take_turns(self) -> None:
        chooser, idle, place = random.Random(self.seed), 0, -1
        while self.tasks:
            place = (place + 1) % len(self.tasks) if self.seed is None else chooser.randrange(len(self.tasks))
            coroutine, finish = self.tasks[place]
            before = (len(self.calls), len(self.works), len(self.tasks))
            try:
                coroutine.send(None)
            except StopIteration as stop:
                self.tasks.pop(place)
                finish(stop.value)
            idle = idle + 1 if before == (len(self.calls), len(self.works), len(self.tasks)) else 0
            if idle >= LAPS_WITHOUT_PROGRESS:
                raise DeadlockError(f"{len(self.tasks)} ranks wait")


class LockstepBackend:
    """One rank of it on one stream."""

    control_device = torch.device("cpu")

    def __init__(self, world: Lockstep, rank: int, stream: str = "main") -> None:
        size, local = world.world_size, world.local_world_size
        self._world, self.rank, self.stream = world, rank, stream
        self.world_size, self.local_world_size = size, local
        self.device = torch.device(world.payload)
        host, place = divmod(rank, local)
        prefix = "" if stream == "main" else f"{stream}/"
        self.world = Group(f"{prefix}world", tuple(range(size)))
        self.intra = Group(f"{prefix}intra:{host}", tuple(range(host * local, (host + 1) * local)))
        self.cross = Group(f"{prefix}cross:{place}", tuple(range(place, size, local)))
        self.current_step = [-1]  # all streams' of this rank
        self._issued: dict[str, int] = {}
        self._queue: deque[tuple[Coroutine[Any, Any, Any], Callable[[Any], None]]] = deque()
        self._is_busy = False

    @property
    def now_ns(self) -> int:
        """No time passes."""
        return 0

    def host_work(self, work: HostWork) -> int:
        return 0

    def knows(self, group: Group) -> bool:
        return True

    def issue(self, call: Call, group: Group, issue: Issue) -> LockstepWork:
        if call.op != rooted.BARRIER.name:  # it moves nothing, so it is not among the calls
            assert call.label
            self._world.calls.append(call)
        key = group.name, self._issued.get(group.name, 0)
        self._issued[group.name] = key[1] + 1
        rendezvous = self._world.rendezvous.setdefault(key, Rendezvous())
        member, work = group.index(self.rank), self._work(issue.output)
        rendezvous.calls[member] = call.for_group(group)
        rendezvous.payloads[member] = COLLECTIVES[call.op].payload(call, issue)
        rendezvous.works.append(work)
        if len(rendezvous.calls) == group.size:
            del self._world.rendezvous[key]
            rendezvous.settle()
        return work

    def refuse(self, call: Call, group: Group) -> None:
        """Tell who is refused; nobody else has to hear of it."""

    def compute(
        self,
        kernel: PricedLater,
        label: str,
        function: Callable[..., Any],
        arguments: Sequence[object],
        purpose: Purpose = NO_PURPOSE,
    ) -> LockstepWork:
        kernel = price_now(kernel)
        assert min(kernel.flops, kernel.bytes_read, kernel.bytes_written) >= 0
        self._world.kernels.append((self.rank, label, kernel))
        return self._work(function(*arguments), done=True)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> LockstepWork:
        work = self._work()

        def finish(result: Any) -> None:
            work.result, work.done, self._is_busy = result, True, False
            self._next()

        self._queue.append((coroutine, finish))
        self._next()
        return work

    def after(self, work: Work[Any]) -> None:
        cast(LockstepWork, work).awaited = True

    async def synchronize(self, work: Work[Any]) -> Any:
        return await work

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        self.current_step[0] = index
        yield
        self.current_step[0] = -1

    def record(self, name: str, value: Tensor | float) -> None:
        self._world.records.append((self.rank, self.current_step[0], name, float(value)))

    def new_group(self, name: str, ranks: Any) -> Group:
        return Group(name, tuple(ranks))

    def open_stream(self, name: str) -> Backend:
        sibling = LockstepBackend(self._world, self.rank, name)
        sibling.current_step = self.current_step
        return sibling

    def _next(self) -> None:
        if self._queue and not self._is_busy:
            self._is_busy = True
            self._world.tasks.append(self._queue.popleft())

    def _work(self, result: Any = None, *, done: bool = False) -> LockstepWork:
        work = LockstepWork(result, done)
        self._world.works.append(work)
        return work


def play(
    program: Callable[[Rank], Coroutine[Any, Any, Any]],
    size: int,
    *,
    device: str = "cpu",
    seed: int = 0,
    all_awaited: bool = True,
) -> tuple[list[Any], Lockstep]:
    """Return what `program(rank)` returned on each rank of one host, and what was issued meanwhile."""
    world = Lockstep(1, size, device, seed)
    return world.run(program, all_awaited=all_awaited), world

"""Runs ranks as coroutines in one process, on collectives that meet in memory; time is left to the simulator.

Each turn goes to a rank or spawned coroutine drawn by a seeded generator, so that nothing rests on one interleaving.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.calls import Call, all_to_all_single_call, disagreement, reduction_call
from scenarios.seam.rank import Group, Kernel

LAPS_WITHOUT_PROGRESS = 10_000


@dataclass
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


@dataclass
class Meeting:
    """One collective: what each member called it with."""

    calls: dict[int, Call] = field(default_factory=dict)
    tensors: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    works: list[LockstepWork] = field(default_factory=list)

    def settle(self) -> None:
        problem = disagreement(self.calls)
        assert problem is None, problem
        first = next(iter(self.calls.values()))
        if not any(output.is_meta for output, _ in self.tensors.values()):
            {"all_reduce": self._all_reduce, "all_to_all_single": self._all_to_all_single}[first.op]()
        for work in self.works:
            work.done = True

    def _all_reduce(self) -> None:
        total = sum(self.tensors[index][1] for index in range(len(self.tensors)))
        for output, _ in self.tensors.values():
            output.copy_(total)

    def _all_to_all_single(self) -> None:
        size = len(self.tensors)
        pieces = {index: _pieces(self.tensors[index][1], self.calls[index].send_bytes) for index in range(size)}
        for index, (output, _) in self.tensors.items():
            output.copy_(torch.cat([pieces[source][index] for source in range(size)]))


def _pieces(tensor: Tensor, sizes_bytes: Sequence[int]) -> tuple[Tensor, ...]:
    row = tensor.element_size() * tensor[:1].numel() if len(tensor) else 1
    return tensor.split([size // row for size in sizes_bytes])


@dataclass
class Fabric:
    """What all ranks share."""

    size: int
    device: torch.device
    chooser: random.Random
    meetings: dict[tuple[str, int], Meeting] = field(default_factory=dict)
    tasks: list[tuple[Coroutine[Any, Any, Any], Callable[[Any], None]]] = field(default_factory=list)
    works: list[LockstepWork] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[tuple[int, str, Kernel]] = field(default_factory=list)
    records: list[tuple[int, int, str, float]] = field(default_factory=list)

    def run(self) -> None:
        idle = 0
        while self.tasks:
            place = self.chooser.randrange(len(self.tasks))
            coroutine, finish = self.tasks[place]
            before = (len(self.calls), len(self.works), len(self.tasks))
            try:
                coroutine.send(None)
            except StopIteration as stop:
                self.tasks.pop(place)
                finish(stop.value)
            idle = idle + 1 if before == (len(self.calls), len(self.works), len(self.tasks)) else 0
            assert idle < LAPS_WITHOUT_PROGRESS, "deadlock"


class LockstepRank:
    """The verbs that compression and its programs use."""

    def __init__(self, fabric: Fabric, rank: int, stream: str = "main") -> None:
        self.fabric, self.rank, self.name = fabric, rank, stream
        self.world = Group(f"{stream}.world", tuple(range(fabric.size)))
        self._issued: dict[str, int] = {}
        self._queue: deque[tuple[Coroutine[Any, Any, Any], Callable[[Any], None]]] = deque()
        self._busy = False
        self._step = [-1]

    @property
    def world_size(self) -> int:
        return self.fabric.size

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    control_device = torch.device("cpu")

    def stream(self, name: str) -> LockstepRank:
        sibling = LockstepRank(self.fabric, self.rank, name)
        sibling._step = self._step
        return sibling

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> LockstepWork:
        work = self._work()

        def finish(result: Any) -> None:
            work.result, work.done, self._busy = result, True, False
            self._next()

        self._queue.append((coroutine, finish))
        self._next()
        return work

    def _next(self) -> None:
        if self._queue and not self._busy:
            self._busy = True
            self.fabric.tasks.append(self._queue.popleft())

    @contextlib.contextmanager
    def step(self, index: int) -> Iterator[None]:
        self._step[0] = index
        yield
        self._step[0] = -1

    def record(self, name: str, value: Tensor | float) -> None:
        if not (isinstance(value, Tensor) and value.is_meta):
            self.fabric.records.append((self.rank, self._step[0], name, float(value)))

    def compute(self, kernel: Kernel, function: Callable[..., Any], *arguments: object, label: str = "") -> Any:
        self.fabric.kernels.append((self.rank, label, kernel))
        work = self._work()
        work.result, work.done = function(*arguments), True
        return work

    def all_reduce(
        self, tensor: Tensor, op: Any = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> LockstepWork:
        group = group or self.world
        call = reduction_call("all_reduce", self.rank, tensor, tensor, op, group, label)
        return self._meet(call, tensor, tensor)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> LockstepWork:
        group = group or self.world
        call = all_to_all_single_call(self.rank, output, input, output_split_sizes, input_split_sizes, group, label)
        return self._meet(call, output, input)

    def barrier(self, group: Group | None = None, *, label: str = "") -> LockstepWork:
        """Moves nothing, so it is not among the calls."""
        name = f"{(group or self.world).name}.barrier"
        number = self._issued[name] = self._issued.get(name, -1) + 1
        meeting = self.fabric.meetings.setdefault((name, number), Meeting())
        work = self._work()
        meeting.works.append(work)
        if len(meeting.works) == self.fabric.size:
            for one in meeting.works:
                one.done = True
        return work

    def _meet(self, call: Call, output: Tensor, input: Tensor) -> LockstepWork:
        number = self._issued[call.group.name] = self._issued.get(call.group.name, -1) + 1
        meeting = self.fabric.meetings.setdefault((call.group.name, number), Meeting())
        work = self._work()
        work.result = output
        index = call.group.index(self.rank)
        meeting.calls[index], meeting.tensors[index] = call, (output, input.clone())
        if output.is_floating_point():
            output.fill_(torch.nan)  # whoever reads an output before it is there shall notice
        meeting.works.append(work)
        self.fabric.calls.append(call)
        if len(meeting.calls) == call.group.size:
            meeting.settle()
        return work

    def _work(self) -> LockstepWork:
        work = LockstepWork()
        self.fabric.works.append(work)
        return work


def play(
    program: Callable[[Any], Coroutine[Any, Any, Any]],
    size: int,
    *,
    device: str = "cpu",
    seed: int = 0,
    all_awaited: bool = True,
) -> tuple[list[Any], Fabric]:
    """What `program(rank)` returned on each rank, and what was issued meanwhile."""
    fabric = Fabric(size=size, device=torch.device(device), chooser=random.Random(seed))
    results: list[Any] = [None] * size
    for rank in range(size):

        def finish(result: Any, rank: int = rank) -> None:
            results[rank] = result

        fabric.tasks.append((program(LockstepRank(fabric, rank)), finish))
    fabric.run()
    assert not all_awaited or all(work.awaited for work in fabric.works), "a work was never awaited"
    return results, fabric

"""SimRank: the verbs of `Rank` in simulated time; how long a collective takes is left to the world's transport."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios import calls
from scenarios.calls import Call
from scenarios.rank import Group, Kernel, Work
from sim.meeting import Meeting
from sim.payload import NO_PAYLOAD, Payload, take
from sim.process import Clock, Signal
from sim.world import Draft, World

T = TypeVar("T")


class SimWork(Generic[T]):
    """Something issued in simulated time."""

    __slots__ = ("_clock", "_draft", "_signal", "_world", "meeting")

    def __init__(self, world: World, draft: Draft) -> None:
        self._world = world
        self._clock: Clock = world.machine.clock
        self._draft = draft
        self._signal: Signal[T] = Signal()
        self.meeting: Meeting | None = None
        world.outstanding[draft] = self

    def finish(self, value: T | None, error: BaseException | None = None) -> None:
        """It ends now."""
        self._draft.end_ns = self._clock.now_ns
        self._signal.fire(value, error)

    def __await__(self) -> Generator[Any, Any, T]:
        draft, world = self._draft, self._world
        world.outstanding.pop(draft, None)
        draft.wait_from_ns = self._clock.now_ns
        world.waiting[draft] = self
        yield from self._signal.wait(self._clock)
        del world.waiting[draft]
        draft.wait_until_ns = self._clock.now_ns
        if self._signal.error is not None:
            raise self._signal.error
        return self._signal.value  # type: ignore[return-value]

    @property
    def error(self) -> BaseException | None:
        """What went wrong in it, if that is known by now."""
        return self._signal.error

    def describe(self) -> str:
        """What a rank that waits for this waits for."""
        if self.meeting is None:
            return self._draft.describe()
        call = f"{self._draft.name} (call {self.meeting.index} of group {self.meeting.group.name})"
        missing = self.meeting.missing
        if not missing:
            return call
        ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        return f"{call}, which {ranks} never entered"


class SimRank:
    """One rank of a simulated world on one stream; see `scenarios.rank.Rank`."""

    def __init__(self, world: World, rank: int, stream: str = "main") -> None:
        self._world = world
        self._rank = rank
        self._stream = stream
        self._sequence = 0
        self._step = -1
        self._computed: Signal[None] | None = None
        self._spawned: deque[Callable[[], None]] = deque()
        self._made_groups = 0
        self._prefix = prefix = "" if stream == "main" else f"{stream}/"  # of its groups' names
        cluster = world.scenario.cluster
        gpus, size, first = cluster.host.gpus, cluster.world_size, self.host * cluster.host.gpus
        self._world_group = world.group(f"{prefix}world", range(size))
        self._intra = world.group(f"{prefix}intra:{self.host}", range(first, first + gpus))
        self._cross = world.group(f"{prefix}cross:{self.local_rank}", range(self.local_rank, size, gpus))

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world.scenario.cluster.world_size

    @property
    def local_rank(self) -> int:
        return self._rank % self.local_world_size

    @property
    def local_world_size(self) -> int:
        return self._world.scenario.cluster.host.gpus

    @property
    def host(self) -> int:
        return self._rank // self.local_world_size

    @property
    def device(self) -> torch.device:
        return self._world.device

    @property
    def control_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def world(self) -> Group:
        return self._world_group

    @property
    def intra(self) -> Group:
        return self._intra

    @property
    def cross(self) -> Group:
        return self._cross

    def new_group(self, ranks: Sequence[int]) -> Group:
        """See `Rank.new_group`; simulated groups need no setting up."""
        self._made_groups += 1
        return Group(f"{self._prefix}group{self._made_groups}", calls.check_group(self._rank, ranks, self.world_size))

    def stream(self, name: str) -> SimRank:
        """See `Rank.stream`."""
        calls.check_stream(self._rank, name, self._world.streams[self._rank])
        self._world.streams[self._rank].append(name)
        return SimRank(self._world, self._rank, name)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """See `Rank.spawn`."""
        work: SimWork[T] = SimWork(
            self._world, self._draft("spawn", getattr(coroutine, "__name__", "spawn"), recorded=False)
        )

        pending, step = self._world.pending, self._world.step[self._rank]
        pending[coroutine] = None

        async def play() -> None:
            del pending[coroutine]
            self._step = step
            try:
                value = await coroutine
            except Exception as error:  # raised where the program awaits
                work.finish(None, error)
            else:
                work.finish(value)
            self._spawned.popleft()
            if self._spawned:
                self._spawned[0]()

        self._spawned.append(lambda: self._world.start(self._rank, play()))
        if len(self._spawned) == 1:
            self._spawned[0]()
        return work

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """See `Rank.step`."""
        world = self._world
        self._step = world.step[self._rank] = index
        draft = self._draft("step", f"step {index}")
        draft.wait_from_ns = draft.wait_until_ns = draft.start_ns = world.machine.clock.now_ns
        try:
            yield
        finally:
            draft.end_ns = world.machine.clock.now_ns
            self._step = world.step[self._rank] = -1

    def record(self, name: str, value: Tensor | float) -> None:
        """See `Rank.record`."""
        if not (isinstance(value, Tensor) and value.is_meta):
            self._world.record(self._rank, self._step, name, float(value))

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]:
        """See `Rank.compute`; kernels of one stream run one after the other."""
        draft = self._draft("compute", label or kernel.kind, kernel=kernel)
        work: SimWork[T] = SimWork(self._world, draft)
        before, mine = self._computed, Signal[None]()
        self._computed = mine
        machine = self._world.machine

        def begin() -> None:
            draft.start_ns = machine.clock.now_ns
            machine.kernel(self._rank, kernel).then(end)

        def end() -> None:
            self._finish_compute(work, function, arguments)
            mine.fire()

        _after(before, begin)
        return work

    def all_to_all(
        self,
        output_tensor_list: list[Tensor],
        input_tensor_list: list[Tensor],
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[list[Tensor]]:
        """See `Rank.all_to_all`; uneven and complex tensors are welcome."""
        group = group or self.world
        if self._rank not in group:
            return self._not_a_member("all_to_all", group, output_tensor_list)
        call = calls.all_to_all_call(self._rank, output_tensor_list, input_tensor_list, group, label)
        return self._collective(call, take(input_tensor_list, output_tensor_list), output_tensor_list)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[Tensor]:
        """See `Rank.all_to_all_single`."""
        group = group or self.world
        if self._rank not in group:
            return self._not_a_member("all_to_all_single", group, output)
        call = calls.all_to_all_single_call(
            self._rank, output, input, output_split_sizes, input_split_sizes, group, label
        )
        return self._collective(call, _single_payload(call, output, input), output)

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_reduce`."""
        return self._reduction("all_reduce", tensor, tensor, op, group, label)

    def reduce_scatter_tensor(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[Tensor]:
        """See `Rank.reduce_scatter_tensor`."""
        return self._reduction("reduce_scatter_tensor", output, input, op, group, label)

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_gather_into_tensor`."""
        return self._reduction("all_gather_into_tensor", output_tensor, input_tensor, None, group, label)

    def broadcast(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.broadcast`."""
        group = group or self.world
        if self._rank not in group:
            return self._not_a_member("broadcast", group, tensor)
        call = calls.rooted_call("broadcast", self._rank, tensor, src, group, label)
        payload = take([tensor], []) if self._rank == src else take([], [tensor])
        return self._collective(call, payload, tensor)

    def barrier(self, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.barrier`."""
        group = group or self.world
        if self._rank not in group:
            return self._not_a_member("barrier", group, None)
        return self._collective(calls.barrier_call(self._rank, group, label), NO_PAYLOAD, None)

    def send(self, tensor: Tensor, dst: int, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.send`."""
        group = group or self.world
        call = calls.rooted_call("send", self._rank, tensor, dst, group, label)
        return self._pair(call, take([tensor], []), self._rank, dst, None)

    def recv(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.recv`."""
        group = group or self.world
        call = calls.rooted_call("recv", self._rank, tensor, src, group, label)
        return self._pair(call, take([], [tensor]), src, self._rank, tensor)

    def _reduction(
        self, op: str, output: Tensor, input: Tensor, reduce: object, group: Group | None, label: str
    ) -> Work[Tensor]:
        group = group or self.world
        if self._rank not in group:
            return self._not_a_member(op, group, output)
        call = calls.reduction_call(op, self._rank, output, input, reduce, group, label)
        return self._collective(call, take([input], [output]), output)

    def _collective(self, call: Call, payload: Payload, result: T) -> Work[T]:
        index = self._world.next_call(call.group.name, self._rank)
        draft = self._draft(call.op, call.label or call.op, call=call, index=index)
        return self._issue(draft, call, payload, index, result)

    def _pair(self, call: Call, payload: Payload, source: int, target: int, result: T) -> Work[T]:
        """A send or recv: the two meet in a group of their own, source first."""
        pair = Group(f"{call.group.name}/{source}->{target}", (source, target))
        index = self._world.next_call(pair.name, self._rank)
        draft = self._draft(call.op, call.label or call.op, call=call)
        return self._issue(draft, calls.in_pair(call, pair), payload, index, result)

    def _issue(self, draft: Draft, call: Call, payload: Payload, index: int, result: T) -> Work[T]:
        world, group = self._world, call.group
        work: SimWork[T] = SimWork(world, draft)
        work.meeting = meeting = world.meeting(group, index)
        lane, member = world.lane(group.name, self._rank), group.index(self._rank)

        def begin() -> None:
            draft.start_ns = world.machine.clock.now_ns
            through = meeting.enter(member, call, payload)
            through.then(lambda: end(through))
            if not through.done:
                world.transport(meeting, member)

        def end(through: Signal[None]) -> None:
            work.finish(result, through.error)
            lane.leave()

        # What was computed before on this stream is there first, as on a device's stream.
        before = self._computed
        lane.enter(lambda: _after(before, begin))
        return work

    def _finish_compute(self, work: SimWork[T], function: Callable[..., T], arguments: tuple[object, ...]) -> None:
        try:
            value = function(*arguments)
        except Exception as error:  # the program's own mistake: it is raised where the program awaits
            work.finish(None, error)
        else:
            work.finish(value)

    def _draft(
        self,
        kind: str,
        label: str,
        *,
        call: Call | None = None,
        index: int = -1,
        kernel: Kernel | None = None,
        recorded: bool = True,
    ) -> Draft:
        draft = Draft(self._rank, self.host, self._stream, kind, label)
        draft.step = self._step
        draft.issued_ns = self._world.machine.clock.now_ns
        draft.call, draft.index, draft.kernel = call, index, kernel
        if recorded:
            draft.sequence = self._sequence
            self._sequence += 1
            self._world.drafts.append(draft)
        return draft

    def _not_a_member(self, op: str, group: Group, result: T) -> Work[T]:
        warnings.warn(calls.not_a_member(op, self._rank, group), stacklevel=3)
        draft = self._draft(op, op, recorded=False)
        work: SimWork[Any] = SimWork(self._world, draft)
        work.finish(None)
        del self._world.outstanding[draft]  # nobody need wait for nothing
        return work


def _after(before: Signal[None] | None, function: Callable[[], None]) -> None:
    if before is None:
        function()
    else:
        before.then(function)


def _single_payload(call: Call, output: Tensor, input: Tensor) -> Payload:
    """The single form as one chunk a member: views of one copy."""
    payload = take([input], [output])
    if not payload.outputs:
        return payload
    return Payload(
        _chunks(payload.inputs[0], call.send_bytes, call.element_size),
        _chunks(payload.outputs[0], call.recv_bytes, call.element_size),
    )


def _chunks(tensor: Tensor, sizes_bytes: Sequence[int], element_size: int) -> tuple[Tensor, ...]:
    return torch.split_with_sizes(tensor.view(-1), [size // element_size for size in sizes_bytes])

"""SimRank: the verbs of `Rank` in simulated time; how long a collective takes is left to the world's transport."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam import calls
from scenarios.seam.arguments import check_label
from scenarios.seam.calls import Call
from scenarios.seam.errors import ProgramError
from scenarios.seam.group_calls import new_group_set_up, stream_set_up
from scenarios.seam.issue import Asked, check_asked, checked
from scenarios.seam.rank import Group, Kernel, Work
from sim.clock import Signal
from sim.hosts.launch_queue import Issuing
from sim.hosts.threads import Hosts
from sim.rank.group_rendezvous import Founding
from sim.rank.open_span import Draft
from sim.rank.payload import NO_PAYLOAD, Payload, take
from sim.rank.work import SimWork
from sim.rank.world import World

T = TypeVar("T")


class SimRank:
    """One rank of a simulated world on one stream; see `scenarios.seam.rank.Rank`."""

    def __init__(self, world: World, rank: int, stream: str = "main", founding: Founding | None = None) -> None:
        self._world = world
        self._rank = rank
        self._stream = stream
        self._sequence = 0
        self._step = -1
        self._computed: Signal[None] | None = None
        self._issuing = Issuing()
        self._spawned: deque[Callable[[], None]] = deque()
        self._made_groups = 0
        hosts = world.machine.hosts
        is_gloo = world.scenario.library == "gloo"
        self._thread = hosts.program(rank, stream) if hosts is not None and is_gloo else None
        self._devices = (world.device.type, self.control_device.type)
        self._prefix = prefix = "" if stream == "main" else f"{stream}/"  # of its groups' names
        cluster = world.scenario.cluster
        gpus, size, first = cluster.host.gpus, cluster.world_size, self.host * cluster.host.gpus
        self._world_group = world.group(f"{prefix}world", range(size), founding)
        intra = f"{prefix}intra:{self.host}"
        self._intra = world.group(intra, range(first, first + gpus), founding, is_in_host=True)
        self._cross = world.group(f"{prefix}cross:{self.local_rank}", range(self.local_rank, size, gpus), founding)

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
        """See `Rank.new_group`; simulated groups need no setting up.

        Raises:
            ProgramError: ranks of the group may not be there, as one host is played for all that are alike.
        """
        if self._world.host_classes is not None:
            raise ProgramError(f"rank {self._rank}: new_group: expected run.ranks = 'each', which plays all its ranks")
        self._made_groups += 1
        name = f"{self._prefix}group{self._made_groups}"
        founding = self._world.founding(self._rank)
        set_up = founding.enter(self._rank, lambda: new_group_set_up(self._rank, ranks, self.world_size, self._stream))
        return self._world.group(name, set_up.ranks, founding)

    def stream(self, name: str) -> SimRank:
        """See `Rank.stream`."""
        taken, founding = self._world.streams[self._rank], self._world.founding(self._rank)
        founding.enter(self._rank, lambda: stream_set_up(self._rank, name, taken))
        taken.append(name)
        return SimRank(self._world, self._rank, name, founding)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """See `Rank.spawn`."""
        work: SimWork[T] = SimWork(
            self._world, self._draft("spawn", getattr(coroutine, "__name__", "spawn"), recorded=False), self._thread
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

        self._spawned.append(lambda: self._world.start(self._rank, play))
        if len(self._spawned) == 1:
            self._begin_spawned()
        return work

    def _begin_spawned(self) -> None:
        """The stream's thread, which had nothing to do, is told of it; it begins with Python."""
        hosts = self._world.machine.hosts
        if self._thread is None or hosts is None:
            self._spawned[0]()
        else:
            self._thread.wake(hosts.tcp.verb_ns, self._spawned[0])

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """See `Rank.step`."""
        world = self._world
        self._step = world.step[self._rank] = index
        world.has_computed[self._rank] = False
        draft = self._draft("step", f"step {index}")
        world.step_began_ns[self._rank] = world.machine.clock.now_ns
        draft.wait_from_ns = draft.wait_until_ns = draft.start_ns = world.machine.clock.now_ns
        try:
            yield
        finally:
            draft.end_ns = world.machine.clock.now_ns
            world.ledger.finish(draft)
            self._step = world.step[self._rank] = -1

    def record(self, name: str, value: Tensor | float) -> None:
        """See `Rank.record`."""
        if not (isinstance(value, Tensor) and value.is_meta):
            self._world.record(self._rank, self._step, name, float(value))

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]:
        """See `Rank.compute`; kernels of one stream run one after the other."""
        check_label("compute", self._rank, label)
        draft = self._draft("compute", label or kernel.kind, kernel=kernel)
        work: SimWork[T] = SimWork(self._world, draft, self._thread)
        measured = self._world.computations.next(self._rank, self._stream, self._step, draft.label, kernel)
        measured_ns = None if measured is None else measured.time_ns
        before, mine, records = self._computed, Signal[None](), torch.is_grad_enabled()
        self._computed = mine
        self._world.has_computed[self._rank] = True
        machine = self._world.machine

        def begin() -> None:
            self._in_thread(lambda hosts: hosts.tcp.verb_ns, run)

        def run() -> None:
            draft.start_ns = machine.clock.now_ns
            machine.kernel(
                self._rank, kernel, self._thread, measured_ns=measured_ns, launched_ns=self._launched_ns
            ).then(end)

        def end() -> None:
            with torch.set_grad_enabled(records):
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
        asked = self._asked("all_to_all", group, label)
        if asked.group.counts:
            raise ProgramError(f"rank {self._rank}: all_to_all: expected run.ranks = 'each', which plays all its ranks")
        return self._collective(
            asked,
            lambda: calls.all_to_all_call(self._rank, output_tensor_list, input_tensor_list, asked.group, label),
            lambda _: take(input_tensor_list, output_tensor_list),
            output_tensor_list,
        )

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[float] | None = None,
        input_split_sizes: Sequence[float] | None = None,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[Tensor]:
        """See `Rank.all_to_all_single`."""
        asked, splits = self._asked("all_to_all_single", group, label), (output_split_sizes, input_split_sizes)
        return self._collective(
            asked,
            lambda: calls.all_to_all_single_call(self._rank, output, input, *splits, asked.group, label),
            lambda call: _single_payload(call, output, input),
            output,
        )

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_reduce`."""
        return self._reduction(self._asked("all_reduce", group, label), tensor, tensor, op)

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
        return self._reduction(self._asked("reduce_scatter_tensor", group, label), output, input, op)

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_gather_into_tensor`."""
        return self._reduction(self._asked("all_gather_into_tensor", group, label), output_tensor, input_tensor, None)

    def broadcast(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.broadcast`."""
        asked = self._asked("broadcast", group, label)
        return self._collective(
            asked,
            lambda: calls.rooted_call("broadcast", self._rank, tensor, src, asked.group, label),
            lambda _: take([tensor], []) if self._rank == src else take([], [tensor]),
            tensor,
        )

    def barrier(self, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.barrier`."""
        asked = self._asked("barrier", group, label)
        return self._collective(
            asked, lambda: calls.barrier_call(self._rank, asked.group, label), lambda _: NO_PAYLOAD, None
        )

    def send(self, tensor: Tensor, dst: int, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.send`."""
        return self._pair(self._asked("send", group, label), tensor, dst, None)

    def recv(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.recv`."""
        return self._pair(self._asked("recv", group, label), tensor, src, tensor)

    def _asked(self, op: str, group: Group | None, label: str) -> Asked:
        asked = check_asked(op, self._rank, group, self.world, label, self._world.knows)
        self._world.check_founded(asked.group)
        return asked

    def _reduction(self, asked: Asked, output: Tensor, input: Tensor, reduce: object) -> Work[Tensor]:
        op, group, label = asked.op, asked.group, asked.label
        return self._collective(
            asked,
            lambda: calls.reduction_call(op, self._rank, output, input, reduce, group, label),
            lambda _: take([input], [output]),
            output,
        )

    def _collective(
        self, asked: Asked, check: Callable[[], Call], payload: Callable[[Call], Payload], result: T
    ) -> Work[T]:
        """A call that is refused takes its place in the group's order all the same: the other members hear of it."""
        if not asked.is_member:
            return self._not_a_member(asked)
        index = self._world.next_call(asked.group.name, self._rank)
        try:
            call = checked(asked, check, self._devices)
        except calls.MISTAKES as mistake:
            self._refuse(asked.refused(mistake), index)
            raise
        draft = self._draft(call.op, call.label or call.op, call=call, index=index)
        return self._issue(draft, call, payload(call), index, result)

    def _pair(self, asked: Asked, tensor: Tensor, peer: int, result: T) -> Work[T]:
        """A send or recv: the two meet in a group of their own, source first."""
        if not asked.is_member:
            return self._not_a_member(asked)
        op, group, label, pair = asked.op, asked.group, asked.label, asked.pair_with(peer)
        index = -1 if pair is None else self._world.next_call(pair.name, self._rank)
        try:
            call = checked(asked, lambda: calls.rooted_call(op, self._rank, tensor, peer, group, label), self._devices)
        except calls.MISTAKES as mistake:
            if pair is not None:
                self._refuse(calls.in_pair(asked.refused(mistake), pair), index)
            raise
        assert pair is not None, "what passed the checks has a peer"
        draft = self._draft(op, label or op, call=call)
        payload = take([tensor], []) if op == "send" else take([], [tensor])
        return self._issue(draft, calls.in_pair(call, pair), payload, index, result)

    def _refuse(self, call: Call, index: int) -> None:
        """The others hear of it where they meet."""
        self._world.meeting(call.group, index).enter(call.group.index(self._rank), call, NO_PAYLOAD)

    def _issue(self, draft: Draft, call: Call, payload: Payload, index: int, result: T) -> Work[T]:
        world, group = self._world, call.group
        work: SimWork[T] = SimWork(world, draft, self._thread)
        work.meeting = meeting = world.meeting(group, index)
        lane, member = world.lane(group.name, self._rank), group.index(self._rank)

        def begin() -> None:
            draft.start_ns = world.machine.clock.now_ns
            through = meeting.enter(member, call, payload)
            through.then(lambda: end(through))
            if not (through.done or meeting.is_wrong):
                world.transport(meeting, member, self._thread)

        def end(through: Signal[None]) -> None:
            draft.formula_ns = meeting.formula_ns
            work.finish(result, through.error)
            lane.leave()

        # What was computed before on this stream is there first, as on a device's stream.
        before, is_cold = self._computed, world.has_computed[self._rank]
        self._in_thread(
            lambda hosts: hosts.issue_ns(is_cold=is_cold), lambda: lane.enter(lambda: _after(before, begin))
        )
        return work

    def _in_thread(self, cost_ns: Callable[[Hosts], int], issue: Callable[[], None]) -> None:
        """What it costs the program to issue an operation comes before it."""
        if self._thread is None:
            issue()
        else:
            hosts = self._world.machine.hosts
            assert hosts is not None, "whose thread it is"
            self._thread.run(cost_ns(hosts), issue)

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
        draft = Draft(self._rank, self.host, self._stream, kind, label, self._world.rank_counts[self._rank])
        draft.step = self._step
        draft.issued_ns = self._world.machine.clock.now_ns
        draft.call, draft.index, draft.kernel = call, index, kernel
        if recorded:
            draft.sequence = self._sequence
            self._sequence += 1
        self._world.ledger.begin(draft, recorded=recorded)
        return draft

    def _launched_ns(self, kernels: int, each_ns: int) -> tuple[int, int]:
        """The host runs ahead within a step."""
        began_ns = self._world.step_began_ns[self._rank] if self._step >= 0 else self._world.machine.clock.now_ns
        return self._issuing.launch(began_ns, kernels, each_ns)

    def _not_a_member(self, asked: Asked) -> Work[Any]:
        warnings.warn(asked.not_a_member(), stacklevel=4)
        draft = self._draft(asked.op, asked.op, recorded=False)
        work: SimWork[Any] = SimWork(self._world, draft, self._thread)
        work.finish(None)
        del self._world.outstanding[draft]  # nobody need wait for nothing
        self._world.ledger.finish(draft)
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

"""TorchRank: the verbs of `Rank` over torch.distributed; how tensors travel is left to `wire`, times to the lanes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from real.rank import libraries as wires
from real.rank.call_checker import CHECKING, Clerk, Held
from real.rank.context import Seat
from real.rank.drive import Player, Spawned, name_of
from real.rank.journal import STEP, Entry
from real.rank.lanes import Pending
from real.rank.libraries import Joined, Rows, Sent
from real.rank.work import Computed, Nothing, TorchWork
from scenarios.seam import calls
from scenarios.seam.arguments import check_label
from scenarios.seam.calls import Call
from scenarios.seam.group_calls import SetUp, new_group_set_up, stream_set_up
from scenarios.seam.issue import Asked, check_asked, checked
from scenarios.seam.rank import Group, Kernel, Work

T = TypeVar("T")


class TorchRank:
    """One rank of a real world on one stream; see `scenarios.seam.rank.Rank`."""

    def __init__(self, seat: Seat, stream: str = "main") -> None:
        self._seat = seat
        self._stream = stream
        self._lane = seat.new_lane(is_main=stream == "main")
        self._player = Player(f"rank {seat.rank} {stream}")
        self._sequence = count()
        self._made_groups = count(1)
        self._devices = (seat.device.type,)
        self._prefix = "" if stream == "main" else f"{stream}/"
        gpus, ranks = seat.local_world_size, range(seat.world_size)
        self._world = seat.join(f"{self._prefix}world", tuple(ranks))
        intra = [seat.join(f"{self._prefix}intra:{host}", _of_host(host, gpus)) for host in range(seat.hosts)]
        cross = [seat.join(f"{self._prefix}cross:{local}", tuple(ranks[local::gpus])) for local in range(gpus)]
        self._intra, self._cross = intra[self.host], cross[self.local_rank]

    @property
    def rank(self) -> int:
        return self._seat.rank

    @property
    def world_size(self) -> int:
        return self._seat.world_size

    @property
    def local_rank(self) -> int:
        return self._seat.rank % self._seat.local_world_size

    @property
    def local_world_size(self) -> int:
        return self._seat.local_world_size

    @property
    def host(self) -> int:
        return self._seat.rank // self._seat.local_world_size

    @property
    def device(self) -> torch.device:
        return self._seat.device

    @property
    def control_device(self) -> torch.device:
        return self._seat.device

    @property
    def world(self) -> Group:
        return self._world

    @property
    def intra(self) -> Group:
        return self._intra

    @property
    def cross(self) -> Group:
        return self._cross

    def new_group(self, ranks: Sequence[int]) -> Group:
        """See `Rank.new_group`."""
        name = f"{self._prefix}group{next(self._made_groups)}"
        with self._agreed(lambda: new_group_set_up(self.rank, ranks, self.world_size, self._stream)) as set_up:
            return self._seat.join(name, set_up.ranks)

    def stream(self, name: str) -> TorchRank:
        """See `Rank.stream`."""
        with self._agreed(lambda: stream_set_up(self.rank, name, self._seat.streams)):
            self._seat.streams.append(name)
            return TorchRank(self._seat, name)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """See `Rank.spawn`: one thread a stream plays the coroutines, in order."""
        entry = Entry(self._lane, self._stream, "spawn", name_of(coroutine), -1)
        self._seat.journal.issued(entry)
        spawned = Spawned(coroutine, self._seat.journal, self._player, entry)
        spawned.start()
        return spawned

    @contextmanager
    def step(self, index: int) -> Iterator[None]:
        """See `Rank.step`; what was measured is spooled after it, outside its span. A step that fails has no span."""
        token = STEP.set(index)
        self._seat.observer.step_begins(index)
        entry = self._entry("step", f"step {index}")
        entry.wait_from = entry.wait_until = entry.issued
        self._seat.journal.keep(entry, is_awaited=False)
        try:
            yield
            entry.end = self._lane.mark()
        finally:
            STEP.reset(token)
            self._seat.step_ends()
            self._seat.observer.step_ends()

    def record(self, name: str, value: Tensor | float) -> None:
        """See `Rank.record`."""
        if not (isinstance(value, Tensor) and value.is_meta):
            self._seat.journal.record(name, self._lane.read(value))

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]:
        """See `Rank.compute`; what `function` raises is raised where it is awaited."""
        check_label("compute", self.rank, label)
        entry = self._entry("compute", label or kernel.kind)
        entry.kernel = kernel
        self._seat.journal.keep(entry)
        try:
            value = self._lane.run(entry, function, arguments)
        except Exception as error:
            return Computed(self._seat, entry, None, error)
        return Computed(self._seat, entry, value, None)

    def all_to_all(
        self,
        output_tensor_list: list[Tensor],
        input_tensor_list: list[Tensor],
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[list[Tensor]]:
        """See `Rank.all_to_all`; uneven and complex tensors are welcome."""
        asked, wire = self._asked("all_to_all", group, label), self._seat.wire
        return self._collective(
            asked,
            lambda: calls.all_to_all_call(self.rank, output_tensor_list, input_tensor_list, asked.group, label),
            lambda joined, _: wire.exchange(joined, output_tensor_list, input_tensor_list),
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

        def start(joined: Joined, call: Call) -> Sent:
            rows = Rows(output, call.recv_bytes), Rows(input, call.send_bytes)
            return wires.exchange_rows(self._seat.wire, joined, *rows)

        return self._collective(
            asked,
            lambda: calls.all_to_all_single_call(self.rank, output, input, *splits, asked.group, label),
            start,
            output,
        )

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_reduce`."""
        asked, wire = self._asked("all_reduce", group, label), self._seat.wire
        return self._collective(
            asked,
            lambda: calls.reduction_call("all_reduce", self.rank, tensor, tensor, op, asked.group, label),
            lambda joined, call: wire.all_reduce(joined, tensor, call.reduce),
            tensor,
        )

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
        asked, wire = self._asked("reduce_scatter_tensor", group, label), self._seat.wire
        return self._collective(
            asked,
            lambda: calls.reduction_call(asked.op, self.rank, output, input, op, asked.group, label),
            lambda joined, call: wire.reduce_scatter(joined, output, input, call.reduce),
            output,
        )

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_gather_into_tensor`."""
        asked = self._asked("all_gather_into_tensor", group, label)
        return self._collective(
            asked,
            lambda: calls.reduction_call(asked.op, self.rank, output_tensor, input_tensor, None, asked.group, label),
            lambda joined, _: wires.all_gather(joined, output_tensor, input_tensor),
            output_tensor,
        )

    def broadcast(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.broadcast`."""
        asked = self._asked("broadcast", group, label)
        return self._collective(
            asked,
            lambda: calls.rooted_call("broadcast", self.rank, tensor, src, asked.group, label),
            lambda joined, call: wires.broadcast(joined, tensor, joined.group.ranks[call.root]),
            tensor,
        )

    def barrier(self, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.barrier`."""
        asked, wire = self._asked("barrier", group, label), self._seat.wire
        return self._collective(
            asked,
            lambda: calls.barrier_call(self.rank, asked.group, label),
            lambda joined, _: wire.barrier(joined),
            None,
        )

    def send(self, tensor: Tensor, dst: int, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.send`."""
        return self._pair(self._asked("send", group, label), tensor, dst, wires.send, None)

    def recv(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.recv`."""
        return self._pair(self._asked("recv", group, label), tensor, src, wires.recv, tensor)

    def _agreed(self, check: Callable[[], SetUp]) -> AbstractContextManager[SetUp]:
        return self._seat.set_ups.agreed(check, self._lane, self._stream)

    def _asked(self, op: str, group: Group | None, label: str) -> Asked:
        return check_asked(op, self.rank, group, self.world, label, self._seat.knows)

    def _collective(
        self, asked: Asked, check: Callable[[], Call], start: Callable[[Joined, Call], Sent], result: T
    ) -> Work[T]:
        """Begun at once, or by the group's clerk: when calls are checked, and while it still holds earlier ones."""
        if not asked.is_member:
            return self._not_a_member(asked)
        clerk, index = self._seat.clerk(asked.group), self._seat.journal.next_call(asked.group.name)
        try:
            call = checked(asked, check, self._devices)
        except calls.MISTAKES as mistake:
            self._seat.refuse(clerk, asked.refused(mistake))
            raise
        entry = self._call_entry(call, index)
        if CHECKING.get() or clerk.is_needed:
            return self._hold(clerk, call, entry, start, result)
        return self._start_now(entry, clerk.joined, start, result)

    def _pair(
        self, asked: Asked, tensor: Tensor, peer: int, start: Callable[[Joined, Tensor, int], Sent], result: T
    ) -> Work[T]:
        """A send or recv has no place in the order of its group, but in that of source and target."""
        if not asked.is_member:
            return self._not_a_member(asked)
        pair = asked.pair_with(peer)
        try:
            call = checked(
                asked,
                lambda: calls.rooted_call(asked.op, self.rank, tensor, peer, asked.group, asked.label),
                self._devices,
            )
        except calls.MISTAKES as mistake:
            if pair is not None:
                self._seat.refuse(self._seat.pair_clerk(asked.group, pair), calls.in_pair(asked.refused(mistake), pair))
            raise
        assert pair is not None, "what passed the checks has a peer"
        clerk, entry = self._seat.pair_clerk(asked.group, pair), self._call_entry(call, -1)

        def begin(joined: Joined, _: Call) -> Sent:
            return start(joined, tensor, peer)

        if clerk.is_needed:
            return self._hold(clerk, calls.in_pair(call, pair), entry, begin, result)
        return self._start_now(entry, clerk.joined, begin, result)

    def _hold(
        self, clerk: Clerk, call: Call, entry: Entry, start: Callable[[Joined, Call], Sent], result: T
    ) -> Work[T]:
        def begin() -> Pending:
            return self._start_later(entry, clerk.joined, start)

        return TorchWork(self._seat, entry, clerk.hold(Held(call, begin, is_checked=CHECKING.get())), result)

    def _call_entry(self, call: Call, index: int) -> Entry:
        """It is kept before the library is called, so that a rank that hangs in it can be found."""
        entry = self._entry(call.op, call.label or call.op)
        entry.call, entry.index = call, index
        self._seat.journal.keep(entry)
        return entry

    def _start_now(self, entry: Entry, joined: Joined, start: Callable[[Joined, Call], Sent], result: T) -> Work[T]:
        try:
            with self._lane.entered(entry.start):
                return TorchWork(self._seat, entry, self._start(entry, joined, start), result)
        except RuntimeError as error:
            raise wires.failed(self.rank, entry.describe(), error) from error

    def _start_later(self, entry: Entry, joined: Joined, start: Callable[[Joined, Call], Sent]) -> Pending:
        """On the clerk's thread: after what the caller's stream had launched, and followed at once."""
        with self._lane.beside(entry.start):
            pending = self._start(entry, joined, start)
        self._lane.overtakes()
        return pending

    def _start(self, entry: Entry, joined: Joined, start: Callable[[Joined, Call], Sent]) -> Pending:
        assert entry.call is not None, "the entry of a call"
        sent = start(joined, entry.call)
        return self._lane.follow(entry, sent.work, sent.finish, (start, sent.held))

    def _entry(self, kind: str, label: str) -> Entry:
        return Entry(self._lane, self._stream, kind, label, next(self._sequence))

    def _not_a_member(self, asked: Asked) -> Work[Any]:
        warnings.warn(asked.not_a_member(), stacklevel=4)
        return Nothing()


def _of_host(host: int, gpus: int) -> tuple[int, ...]:
    return tuple(range(host * gpus, (host + 1) * gpus))

"""TorchRank: the verbs of `Rank` over torch.distributed; how tensors travel is left to `wire`, times to the lanes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from real import wire as wires
from real.clock import Pending
from real.drive import Player, Spawned, name_of
from real.journal import STEP, Entry
from real.seat import Seat
from real.wire import Joined, Rows, Sent
from scenarios import calls
from scenarios.calls import Call
from scenarios.rank import Group, Kernel, Work

T = TypeVar("T")


class TorchWork(Generic[T]):
    """A collective that was issued."""

    __slots__ = ("_entry", "_pending", "_result", "_seat")

    def __init__(self, seat: Seat, entry: Entry, pending: Pending, result: T) -> None:
        self._seat, self._entry, self._pending, self._result = seat, entry, pending, result

    def __await__(self) -> Generator[Any, Any, T]:
        entry, journal = self._entry, self._seat.journal
        was_over = self._pending.is_over()
        journal.wait_begins(entry)
        try:
            self._pending.wait()
        except RuntimeError as error:
            raise wires.lost(self._seat.rank, entry.describe(), error) from error
        journal.wait_ends(entry, has_waited=not was_over)
        return self._result
        yield  # pragma: no cover - makes this a generator


class Computed(Generic[T]):
    """A kernel that was launched (on a CPU: that has run)."""

    __slots__ = ("_entry", "_error", "_seat", "_value")

    def __init__(self, seat: Seat, entry: Entry, value: T | None, error: Exception | None) -> None:
        self._seat, self._entry, self._value, self._error = seat, entry, value, error

    def __await__(self) -> Generator[Any, Any, T]:
        journal, entry = self._seat.journal, self._entry
        journal.wait_begins(entry)
        assert entry.end is not None, "a lane marks the end of every kernel"
        entry.lane.wait_for(entry.end)
        journal.wait_ends(entry, has_waited=not isinstance(entry.end, int))
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
        yield  # pragma: no cover - makes this a generator


class Nothing:
    """What a rank gets that is not in the group."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, Any]:
        return None
        yield  # pragma: no cover - makes this a generator


class TorchRank:
    """One rank of a real world on one stream; see `scenarios.rank.Rank`."""

    def __init__(self, seat: Seat, stream: str = "main") -> None:
        self._seat = seat
        self._stream = stream
        self._lane = seat.new_lane(is_main=stream == "main")
        self._player = Player(f"rank {seat.rank} {stream}")
        self._sequence = count()
        self._made_groups = count(1)
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
        members = calls.check_group(self.rank, ranks, self.world_size)
        return self._seat.join(f"{self._prefix}group{next(self._made_groups)}", members)

    def stream(self, name: str) -> TorchRank:
        """See `Rank.stream`."""
        calls.check_stream(self.rank, name, self._seat.streams)
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
            self._seat.observer.step_ends()

    def record(self, name: str, value: Tensor | float) -> None:
        """See `Rank.record`."""
        if not (isinstance(value, Tensor) and value.is_meta):
            self._seat.journal.record(name, float(value))

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]:
        """See `Rank.compute`; what `function` raises is raised where it is awaited."""
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
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("all_to_all", group)
        call = calls.all_to_all_call(self.rank, output_tensor_list, input_tensor_list, group, label)
        wire = self._seat.wire
        return self._issue(
            call, lambda joined: wire.exchange(joined, output_tensor_list, input_tensor_list), output_tensor_list
        )

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
        if self.rank not in group:
            return self._not_a_member("all_to_all_single", group)
        call = calls.all_to_all_single_call(
            self.rank, output, input, output_split_sizes, input_split_sizes, group, label
        )
        rows = Rows(output, call.recv_bytes), Rows(input, call.send_bytes)
        return self._issue(call, lambda joined: wires.exchange_rows(self._seat.wire, joined, *rows), output)

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_reduce`."""
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("all_reduce", group)
        call = calls.reduction_call("all_reduce", self.rank, tensor, tensor, op, group, label)
        return self._issue(call, lambda joined: self._seat.wire.all_reduce(joined, tensor, call.reduce), tensor)

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
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("reduce_scatter_tensor", group)
        call = calls.reduction_call("reduce_scatter_tensor", self.rank, output, input, op, group, label)
        wire = self._seat.wire
        return self._issue(call, lambda joined: wire.reduce_scatter(joined, output, input, call.reduce), output)

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]:
        """See `Rank.all_gather_into_tensor`."""
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("all_gather_into_tensor", group)
        op = "all_gather_into_tensor"
        call = calls.reduction_call(op, self.rank, output_tensor, input_tensor, None, group, label)
        return self._issue(call, lambda joined: wires.all_gather(joined, output_tensor, input_tensor), output_tensor)

    def broadcast(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.broadcast`."""
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("broadcast", group)
        call = calls.rooted_call("broadcast", self.rank, tensor, src, group, label)
        return self._issue(call, lambda joined: wires.broadcast(joined, tensor, src), tensor)

    def barrier(self, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.barrier`."""
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("barrier", group)
        return self._issue(calls.barrier_call(self.rank, group, label), wires.barrier, None)

    def send(self, tensor: Tensor, dst: int, group: Group | None = None, *, label: str = "") -> Work[None]:
        """See `Rank.send`."""
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("send", group)
        call = calls.rooted_call("send", self.rank, tensor, dst, group, label)
        return self._issue(call, lambda joined: wires.send(joined, tensor, dst), None)

    def recv(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]:
        """See `Rank.recv`."""
        group = group or self.world
        if self.rank not in group:
            return self._not_a_member("recv", group)
        call = calls.rooted_call("recv", self.rank, tensor, src, group, label)
        return self._issue(call, lambda joined: wires.recv(joined, tensor, src), tensor)

    def _issue(self, call: Call, start: Callable[[Joined], Sent], result: T) -> Work[T]:
        """The entry is there before the library is called, so that a rank that hangs in it can be found."""
        entry = self._entry(call.op, call.label or call.op)
        entry.call = call
        if call.op not in ("send", "recv"):
            entry.index = self._seat.journal.next_call(call.group.name)
        self._seat.journal.keep(entry)
        try:
            with self._lane.entered():
                sent = start(self._seat.joined(call.group))
                pending = self._lane.follow(entry, sent.work, sent.finish)
        except RuntimeError as error:
            raise wires.lost(self.rank, entry.describe(), error) from error
        return TorchWork(self._seat, entry, pending, result)

    def _entry(self, kind: str, label: str) -> Entry:
        return Entry(self._lane, self._stream, kind, label, next(self._sequence))

    def _not_a_member(self, op: str, group: Group) -> Work[Any]:
        warnings.warn(calls.not_a_member(op, self.rank, group), stacklevel=3)
        return Nothing()


def _of_host(host: int, gpus: int) -> tuple[int, ...]:
    return tuple(range(host * gpus, (host + 1) * gpus))

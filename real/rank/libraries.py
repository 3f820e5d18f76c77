"""How tensors travel over torch.distributed: what gloo and NCCL cannot do as asked is done with what they can.

Whatever only moves travels as bytes, so every dtype does; a reduction that a library lacks is made of one that it
has. Arguments are checked by `scenarios.seam.calls` before; waiting and times are left to the lanes. So the frequent
calls go to `ProcessGroup`'s own methods: torch.distributed's functions check once more, which takes 4 to 6 us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from scenarios.seam.arguments import REDUCE_OPS
from scenarios.seam.errors import ProgramError, RankLostError
from scenarios.seam.rank import Group
from scenarios.seam.tensor_bytes import as_bytes, resolved, without_grad

_OPS: dict[str, Any] = {name: op for op, name in REDUCE_OPS.items()}
# Neither library reduces these; sums and products of a wider integer, cut to the width, are the same.
_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
# torch 2.13 renamed these three, and warns about the old names of the first two.
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_exchange: Callable[..., Any] = getattr(dist.ProcessGroup, "all_to_all_single", dist.ProcessGroup.alltoall_base)


def _reduction(reduce: str) -> dist.AllreduceOptions:
    options = dist.AllreduceOptions()
    options.reduceOp = _OPS[reduce]
    return options


_REDUCTIONS = {name: _reduction(name) for name in _OPS}
_ON_CPU = dist.BarrierOptions()
_ON_CPU.device = torch.device("cpu")


@contextmanager
def transport(rank: int, what: str) -> Iterator[None]:
    """The door at which the libraries' errors become ours.

    Raises:
        RankLostError: `rank` and `what` failed, with the transport's first line: a connection broke, or waited too
            long. Another rank is the likely cause.
        ProgramError: the same sentence, of a library that refused what it was given.
    """
    try:
        yield
    except RuntimeError as error:
        raise failed(rank, what, error) from error


def failed(rank: int, what: str, error: RuntimeError) -> ProgramError:
    """What `transport` raises, for verbs: they cannot afford a context manager."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    kind = RankLostError if _is_transports(error) else ProgramError
    return kind(f"rank {rank}: {what} failed: {first}")


def _is_transports(error: RuntimeError) -> bool:
    """Whether a connection broke or waited too long; else the library has refused what it was given.

    gloo has no exception types of its own, but names its source file; its assertions on arguments are "enforce fail".
    """
    text = str(error)
    is_gloos = "gloo/transport/" in text or "gloo/rendezvous/" in text
    return isinstance(error, dist.DistError) or (is_gloos and "enforce fail" not in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A group that this rank is in. `order` gives, for each rank of the handle, its place in the group.

    torch.distributed sorts the ranks of a group; a program may have named them in another order.
    """

    group: Group
    handle: dist.ProcessGroup
    order: tuple[int, ...]

    @property
    def is_sorted(self) -> bool:
        """Whether both orders are the same."""
        return self.order == tuple(range(len(self.order)))


@dataclass(frozen=True, slots=True)
class Sent:
    """A collective on its way, what is left to do with the buffers once it has ended, and further ones that it uses."""

    work: dist.Work
    finish: Callable[[], None] | None = None
    held: object = None


class Wire(Protocol):
    """A library; `lanes` is how many calls on one group it serves at a time."""

    backend: str
    lanes: int

    def open(self, joined: Joined) -> None:
        """All members have made the group: what a first call would have to make is made now."""
        ...

    def barrier(self, joined: Joined) -> Sent:
        """Until all members are here."""
        ...

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Sent:
        """All to all: one tensor for each member, in group order, of any size."""
        ...

    def all_reduce(self, joined: Joined, tensor: Tensor, reduce: str) -> Sent:
        """In place."""
        ...

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> Sent:
        """The share of this member of the reduced input."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A contiguous tensor and its bytes for each member, in group order."""

    tensor: Tensor
    sizes_bytes: Sequence[int]

    def chunks(self) -> Sequence[Tensor]:
        """Views of its bytes."""
        return split(as_bytes(self.tensor), self.sizes_bytes)


class Gloo:
    """gloo, on CPU tensors: futures say when a call ended; two threads serve a group."""

    backend = "gloo"
    lanes = 2

    def open(self, joined: Joined) -> None:
        """gloo connects its ranks when it makes a group."""

    def barrier(self, joined: Joined) -> Sent:
        """gloo's own."""
        return Sent(joined.handle.barrier(_ON_CPU))

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Sent:
        """Through one buffer each way: gloo's own list form wants equal sizes."""
        sent = torch.cat([as_bytes(inputs[place]) for place in joined.order])
        targets = [as_bytes(outputs[place]) for place in joined.order]
        sizes = [len(target) for target in targets]
        received = torch.empty(sum(sizes), dtype=torch.uint8)
        given = [inputs[place].numel() * inputs[place].element_size() for place in joined.order]
        work = _exchange(joined.handle, received, sent, sizes, given)

        def finish() -> None:
            """In group order: of outputs that share memory, the last member's stays."""
            chunks = dict(zip(joined.order, zip(targets, split(received, sizes), strict=True), strict=True))
            for place in sorted(chunks):
                target, chunk = chunks[place]
                target.copy_(chunk)

        return Sent(work, finish)

    def all_reduce(self, joined: Joined, tensor: Tensor, reduce: str) -> Sent:
        """gloo has no average: a sum, divided."""
        if tensor.is_complex() and reduce == "product":
            return _product(joined, tensor)
        arithmetic = _arithmetic(tensor)
        work = joined.handle.allreduce([arithmetic], _REDUCTIONS["sum" if reduce == "avg" else reduce])
        if reduce != "avg" and arithmetic.data_ptr() == tensor.data_ptr():
            return Sent(work)

        def finish() -> None:
            if reduce == "avg":
                _divide(arithmetic, joined.group.size)
            if arithmetic.data_ptr() != tensor.data_ptr():
                _as_real(tensor).copy_(arithmetic)

        return Sent(work, finish)

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> Sent:
        """As gloo does it: an all-reduce of the whole input. By hand, because gloo's own hides when it ended."""
        whole = resolved(input).clone()
        reduced = self.all_reduce(joined, whole, reduce)
        mine = joined.order[joined.handle.rank()]

        def finish() -> None:
            if reduced.finish is not None:
                reduced.finish()
            output.detach().view(-1).copy_(whole.view(joined.group.size, -1)[mine])

        return Sent(reduced.work, finish)


class Nccl:
    """NCCL, on CUDA tensors: one stream serves a group; averages, uneven lists and reduce-scatter are its own."""

    backend = "cpu:gloo,cuda:nccl"
    lanes = 1

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flags: dict[str, Tensor] = {}

    def open(self, joined: Joined) -> None:
        """The first collective makes the communicator; it ends before another group makes one, which takes memory."""
        self._flags[joined.group.name] = torch.zeros(1, device=self._device)
        self.barrier(joined).work.wait()
        torch.cuda.current_stream(self._device).synchronize()

    def barrier(self, joined: Joined) -> Sent:
        """An all-reduce of one float32, as torch's own; but that makes the host wait for the device too."""
        return Sent(joined.handle.allreduce([self._flags[joined.group.name]], _REDUCTIONS["sum"]))

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Sent:
        """Grouped sends and receives of any size; outputs that overlap inputs get a buffer."""
        sources = [as_bytes(inputs[place]) for place in joined.order]
        targets = [as_bytes(outputs[place]) for place in joined.order]
        if any(_overlap(target, source) for target in targets for source in sources):
            sources = [source.clone() for source in sources]
        work = _started(dist.all_to_all(targets, sources, group=joined.handle, async_op=True))
        return Sent(work, held=(targets, sources))

    def all_reduce(self, joined: Joined, tensor: Tensor, reduce: str) -> Sent:
        """In place, or by way of a wider type."""
        if tensor.is_complex() and reduce == "product":
            return _product(joined, tensor)
        arithmetic = _arithmetic(tensor)
        work = joined.handle.allreduce([arithmetic], _REDUCTIONS[reduce])
        if arithmetic.data_ptr() == tensor.data_ptr():
            return Sent(work)
        return Sent(work, lambda: _copy(_as_real(tensor), arithmetic))

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> Sent:
        """NCCL's own where the type and the order allow it."""
        is_plain = input.dtype not in _WIDER and not (input.is_complex() and reduce == "product")
        if is_plain and joined.is_sorted:
            own, source = _as_real(output), _as_real(resolved(input))
            work = _reduce_scatter(own, source, op=_OPS[reduce], group=joined.handle, async_op=True)
            return Sent(_started(work), held=source)
        whole = resolved(input).clone()
        reduced = self.all_reduce(joined, whole, reduce)
        mine = joined.order[joined.handle.rank()]

        def finish() -> None:
            if reduced.finish is not None:
                reduced.finish()
            output.detach().view(-1).copy_(whole.view(joined.group.size, -1)[mine])

        return Sent(reduced.work, finish)


def all_gather(joined: Joined, output: Tensor, input: Tensor) -> Sent:
    """Everyone's input, one after the other in group order."""
    source, target = as_bytes(input), as_bytes(output)
    if joined.is_sorted and not _overlap(target, source):
        return Sent(_started(_all_gather(target, source, group=joined.handle, async_op=True)), held=source)
    gathered, source = torch.empty_like(target), source.clone()
    work = _started(_all_gather(gathered, source, group=joined.handle, async_op=True))

    def finish() -> None:
        rows = target.view(joined.group.size, -1)
        for place, row in zip(joined.order, gathered.view(joined.group.size, -1), strict=True):
            rows[place].copy_(row)

    return Sent(work, finish, source)


def broadcast(joined: Joined, tensor: Tensor, src: int) -> Sent:
    """From a global rank."""
    options = dist.BroadcastOptions()
    options.rootRank = joined.order.index(joined.group.index(src))
    return Sent(joined.handle.broadcast([as_bytes(tensor)], options))


def send(joined: Joined, tensor: Tensor, dst: int) -> Sent:
    """To a global rank."""
    source = as_bytes(tensor)
    return Sent(_started(dist.isend(source, dst, group=joined.handle)), held=source)


def recv(joined: Joined, tensor: Tensor, src: int) -> Sent:
    """From a global rank."""
    return Sent(_started(dist.irecv(as_bytes(tensor), src, group=joined.handle)))


def split(flat: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Views of consecutive parts."""
    return torch.split(flat, list(sizes))


def exchange_rows(wire: Wire, joined: Joined, output: Rows, input: Rows) -> Sent:
    """All to all of two tensors and how many bytes of each belong to each member.

    Straight from and to the program's memory, unless the two overlap or the orders differ.
    """
    if not joined.is_sorted or _overlap(output.tensor, input.tensor):
        return wire.exchange(joined, output.chunks(), input.chunks())
    target, source = as_bytes(output.tensor), as_bytes(input.tensor)
    return Sent(_exchange(joined.handle, target, source, output.sizes_bytes, input.sizes_bytes), held=source)


def _product(joined: Joined, tensor: Tensor) -> Sent:
    """A product of complex numbers is no product of their parts: gather them, and multiply in group order."""
    gathered = tensor.new_empty((joined.group.size, tensor.numel()))
    sent = all_gather(joined, gathered, tensor.detach().clone())

    def finish() -> None:
        if sent.finish is not None:
            sent.finish()
        tensor.detach().view(-1).copy_(functools.reduce(torch.mul, gathered.unbind()))

    return Sent(sent.work, finish, sent.held)


def _arithmetic(tensor: Tensor) -> Tensor:
    """What the libraries can add: the same memory where they can, else a wider copy."""
    wider = _WIDER.get(tensor.dtype)
    return _as_real(tensor) if wider is None else tensor.detach().to(wider)


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else without_grad(tensor)


def _divide(tensor: Tensor, by: int) -> None:
    if tensor.is_floating_point():
        tensor.div_(by)
    else:
        tensor.div_(by, rounding_mode="trunc")


def _copy(target: Tensor, source: Tensor) -> None:
    target.copy_(source)


def _overlap(first: Tensor, second: Tensor) -> bool:
    """Whether two contiguous tensors share bytes."""
    starts = (first.data_ptr(), second.data_ptr())
    ends = (starts[0] + first.numel() * first.element_size(), starts[1] + second.numel() * second.element_size())
    return max(starts) < min(ends)


def _started(work: dist.Work | None) -> dist.Work:
    assert work is not None, "only a member of a group issues on it"
    return work

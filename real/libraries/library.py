"""Defines `DeviceLibrary`: how each collective begins on a communication library of a real rank.

`scenarios.seam.collectives` checks arguments before; lanes wait for the calls and record times.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from real.libraries import moves
from real.libraries.moves import (
    COALESCED_REDUCTIONS,
    OPS,
    REDUCTIONS,
    Joined,
    MovingCollective,
    all_gather_lists,
    arithmetic_of,
    as_real,
    divide,
    product,
    scatter_reduced,
    together,
)
from real.rank.lanes import StreamLane
from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.collectives import coalesced, exchange, lists, reduction, rooted
from scenarios.seam.payload import as_bytes, resolve_views, without_grad


class DeviceLibrary:
    """A communication library on one device; the base class suits one for CPUs."""

    backend: str  # torch's name for the library
    lanes: int  # number of calls on one group that it serves concurrently
    has_averages = True

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.starts = _starts_of(self)

    @classmethod
    def check_devices(cls, ranks: int) -> None:
        """Raise ScenarioError if this machine lacks devices for all ranks; CPUs are on every machine."""

    @classmethod
    def at(cls, local_rank: int) -> DeviceLibrary:
        """Return the library for one rank of this machine; ScenarioError if the machine has no device for it."""
        raise NotImplementedError

    def open(self, joined: Joined) -> None:
        """Set up the group now, with all members, rather than in its first call."""

    def new_lane(self, *, is_main: bool) -> StreamLane:
        """Return a new stream of the device."""
        return StreamLane()

    def between_steps(self) -> None:
        """Do slow housekeeping outside of steps."""

    def barrier(self, joined: Joined) -> MovingCollective:
        """Wait until all members have entered."""
        raise NotImplementedError

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> MovingCollective:
        """Exchange one tensor of any size with each member, in group order."""
        raise NotImplementedError

    def all_reduce(self, joined: Joined, tensor: Tensor, reduce: str) -> MovingCollective:
        """Reduce in place, or in a wider dtype; an average that the library lacks is a sum, then divided."""
        if tensor.is_complex() and reduce == "product":
            return product(joined, tensor)
        arithmetic = arithmetic_of(tensor)
        # A wider copy lies elsewhere; the view of complex numbers as real ones shares the tensor's memory.
        is_copy = arithmetic.data_ptr() != tensor.data_ptr()
        divides = reduce == "avg" and not self.has_averages
        work = joined.handle.allreduce([arithmetic], REDUCTIONS["sum" if divides else reduce])
        if not (divides or is_copy):
            return MovingCollective(work)

        def finish() -> None:
            if divides:
                divide(arithmetic, joined.group.size)
            if is_copy:
                as_real(tensor).copy_(arithmetic)

        return MovingCollective(work, finish)

    def all_reduce_coalesced(self, joined: Joined, tensors: Sequence[Tensor], reduce: str) -> MovingCollective:
        """Reduce several tensors in place by torch's own call; dtypes that it cannot add, as one tensor."""
        arithmetic = [arithmetic_of(tensor) for tensor in tensors]
        is_copy = any(wide.data_ptr() != own.data_ptr() for wide, own in zip(arithmetic, tensors, strict=True))
        if is_copy or (tensors[0].is_complex() and reduce == "product"):
            return self._as_one(joined, tensors, reduce)
        divides = reduce == "avg" and not self.has_averages
        work = joined.handle.allreduce_coalesced(arithmetic, COALESCED_REDUCTIONS["sum" if divides else reduce])
        if not divides:
            return MovingCollective(work, held=arithmetic)

        def finish() -> None:
            for each in arithmetic:
                divide(each, joined.group.size)

        return MovingCollective(work, finish, arithmetic)

    def _as_one(self, joined: Joined, tensors: Sequence[Tensor], reduce: str) -> MovingCollective:
        flat = torch.cat([without_grad(tensor).reshape(-1) for tensor in tensors])
        sent = self.all_reduce(joined, flat, reduce)

        def copy_out() -> None:
            for own, piece in zip(tensors, flat.split([each.numel() for each in tensors]), strict=True):
                without_grad(own).view(-1).copy_(piece)

        return sent.then(copy_out)

    def reduce(self, joined: Joined, call: Call, tensor: Tensor) -> MovingCollective:
        """Reduce into the root's tensor, or in a wider dtype; torch overwrites the other members' tensors, too."""
        if tensor.is_complex() and call.reduce == "product":
            return product(joined, tensor)
        arithmetic, is_root = arithmetic_of(tensor), joined.group.ranks[call.root] == call.rank
        is_copy = arithmetic.data_ptr() != tensor.data_ptr()
        divides = call.reduce == "avg" and not self.has_averages
        options = dist.ReduceOptions()
        options.reduceOp = OPS["sum" if divides else call.reduce]
        # torch counts roots by its own sorted order of the group.
        options.rootRank = joined.order.index(call.root)
        work = joined.handle.reduce([arithmetic], options)

        def finish() -> None:
            if divides and is_root:
                divide(arithmetic, joined.group.size)
            if is_copy and is_root:
                as_real(tensor).copy_(arithmetic)

        return MovingCollective(work, finish, arithmetic)

    def monitored_barrier(self, joined: Joined) -> MovingCollective:
        """Call a plain barrier, as the library has no monitored one."""
        return self.barrier(joined)

    def all_gather_list(self, joined: Joined, call: Call, issue: Issue) -> MovingCollective:
        """Gather all members' inputs, each into its own tensor; uneven sizes by an exchange."""
        if call.parts:
            return self.exchange(joined, issue.output, [issue.input] * joined.group.size)
        return all_gather_lists(joined, [[output] for output in issue.output], [issue.input])

    def all_gather_coalesced(
        self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> MovingCollective:
        """Gather all members' inputs through one buffer, as torch's gloo does."""
        size = joined.group.size
        rows = [as_bytes(output).view(size, -1) for output in outputs]
        return all_gather_lists(joined, [[row[place] for row in rows] for place in range(size)], inputs)

    def reduce_scatter_list(
        self, joined: Joined, output: Tensor, inputs: Sequence[Tensor], reduce: str
    ) -> MovingCollective:
        """Reduce-scatter a list by an all-reduce of each tensor, as torch's gloo does."""
        # All-reduces write in place: without the copies a program's inputs would change.
        wholes = [resolve_views(each).clone() for each in inputs]
        reduced = together([self.all_reduce(joined, whole, reduce) for whole in wholes])
        mine = wholes[joined.order[joined.handle.rank()]]
        return reduced.then(lambda: output.detach().view(-1).copy_(mine.view(-1)))

    def reduce_scatter_coalesced(
        self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor], reduce: str
    ) -> MovingCollective:
        """Reduce-scatter several inputs, one after the other."""
        both = zip(outputs, inputs, strict=True)
        return together([self.reduce_scatter(joined, output, input, reduce) for output, input in both])

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> MovingCollective:
        """Reduce-scatter by an all-reduce of the whole input."""
        whole = resolve_views(input).clone()
        return scatter_reduced(self.all_reduce(joined, whole, reduce), whole, joined, output)


def _starts_of(library: DeviceLibrary) -> dict[str, moves.Start]:
    """Return the functions that begin each collective on the library, by name."""

    return {
        exchange.ALL_TO_ALL.name: lambda joined, _, issue: library.exchange(joined, issue.output, issue.input),
        exchange.ALL_TO_ALL_SINGLE.name: lambda joined, call, issue: _exchange_rows(library, joined, call, issue),
        reduction.ALL_GATHER_INTO_TENSOR.name: lambda joined, _, issue: moves.all_gather(
            joined, issue.output, issue.input
        ),
        rooted.BROADCAST.name: lambda joined, call, issue: moves.broadcast(
            joined, issue.output, call.group.ranks[call.root]
        ),
        reduction.ALL_REDUCE.name: lambda joined, call, issue: library.all_reduce(joined, issue.output, call.reduce),
        coalesced.ALL_REDUCE_COALESCED.name: lambda joined, call, issue: library.all_reduce_coalesced(
            joined, issue.output, call.reduce
        ),
        coalesced.REDUCE_SCATTER_TENSOR_COALESCED.name: lambda joined, call, issue: library.reduce_scatter_coalesced(
            joined, issue.output, issue.input, call.reduce
        ),
        coalesced.ALL_GATHER_INTO_TENSOR_COALESCED.name: lambda joined, _, issue: library.all_gather_coalesced(
            joined, issue.output, issue.input
        ),
        coalesced.ALL_GATHER_COALESCED.name: lambda joined, _, issue: moves.all_gather_lists(
            joined, issue.output, issue.input
        ),
        lists.ALL_GATHER.name: library.all_gather_list,
        lists.REDUCE_SCATTER.name: lambda joined, call, issue: library.reduce_scatter_list(
            joined, issue.output, issue.input, call.reduce
        ),
        rooted.REDUCE.name: lambda joined, call, issue: library.reduce(joined, call, issue.output),
        rooted.GATHER.name: moves.gather,
        rooted.SCATTER.name: moves.scatter,
        reduction.REDUCE_SCATTER_TENSOR.name: lambda joined, call, issue: library.reduce_scatter(
            joined, issue.output, issue.input, call.reduce
        ),
        rooted.BARRIER.name: lambda joined, _, __: library.barrier(joined),
        rooted.MONITORED_BARRIER.name: lambda joined, _, __: library.monitored_barrier(joined),
        rooted.SEND.name: lambda joined, _, issue: moves.send(joined, issue.input, issue.root),
        rooted.RECV.name: lambda joined, _, issue: moves.recv(joined, issue.output, issue.root),
    }


def _exchange_rows(library: DeviceLibrary, joined: Joined, call: Call, issue: Issue) -> MovingCollective:
    """Exchange rows of two tensors, with `call.send_bytes` and `call.recv_bytes` per member.

    Data moves directly from and to the program's memory, unless the tensors overlap or the orders differ.
    """
    target, source = as_bytes(issue.output), as_bytes(issue.input)
    if not joined.is_sorted or moves.overlap(issue.output, issue.input):
        return library.exchange(joined, moves.split(target, call.recv_bytes), moves.split(source, call.send_bytes))
    return MovingCollective(
        moves.EXCHANGE(joined.handle, target, source, call.recv_bytes, call.send_bytes), held=source
    )

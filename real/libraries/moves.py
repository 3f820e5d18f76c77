"""Begins collectives on torch.distributed, and emulates those that gloo or NCCL lack.

Data that is only moved travels as bytes, so that every dtype works; a reduction that a library lacks is made of one
that it has. Frequent calls use `ProcessGroup`'s methods: torch.distributed's functions check once more, which takes 4
to 6 us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scenarios.seam.arguments import REDUCE_OPS, Issue
from scenarios.seam.calls import Call
from scenarios.seam.collectives.several import Several
from scenarios.seam.group import Group
from scenarios.seam.payload import as_bytes, without_grad


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A group that contains this rank. `order` gives, for each rank of the handle, its group rank.

    torch.distributed sorts the ranks of a group; a program may have listed them in another order.
    """

    group: Group
    handle: dist.ProcessGroup
    order: tuple[int, ...]

    @property
    def is_sorted(self) -> bool:
        """Whether both orders are equal."""
        return self.order == tuple(range(len(self.order)))


@dataclass(frozen=True, slots=True)
class MovingCollective:
    """A collective in progress: its work, what remains to be done at its end, and buffers to keep until then."""

    work: dist.Work
    finish: Callable[[], None] | None = None
    held: object = None

    def end(self) -> None:
        """Do what remains to be done once the work is over."""
        if self.finish is not None:
            self.finish()

    def then(self, more: Callable[[], object]) -> MovingCollective:
        """Return the same collective with `more` to be done at its end."""

        def finish() -> None:
            self.end()
            more()

        return MovingCollective(self.work, finish, self.held)


def together(sents: Sequence[MovingCollective]) -> MovingCollective:
    """Combine several collectives in progress into one."""

    def finish() -> None:
        for sent in sents:
            sent.end()

    works = [sent.work for sent in sents]
    return MovingCollective(Several(works), finish, [sent.held for sent in sents])


# Begins a collective, from the checked call and the verb's arguments.
Start = Callable[[Joined, Call, Issue], MovingCollective]


def split(flat: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Return views of consecutive parts."""
    return torch.split(flat, list(sizes))


OPS: dict[str, Any] = {name: op for op, name in REDUCE_OPS.items()}
# Dtypes that neither library reduces; sums and products in a wider integer, truncated, give equal results.
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
# torch 2.13 renamed these, and warns about the old names of the first two.
ALL_GATHER: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
GATHER_COALESCED: Callable[..., Any] = getattr(
    dist.ProcessGroup, "all_gather_single_coalesced", dist.ProcessGroup.allgather_into_tensor_coalesced
)
SCATTER_COALESCED: Callable[..., Any] = getattr(
    dist.ProcessGroup, "reduce_scatter_single_coalesced", dist.ProcessGroup.reduce_scatter_tensor_coalesced
)
EXCHANGE: Callable[..., Any] = getattr(dist.ProcessGroup, "all_to_all_single", dist.ProcessGroup.alltoall_base)


def _options(kind: type[Any]) -> dict[str, Any]:
    """Return torch's options of an all-reduce by the name of its operation."""
    made = {name: kind() for name in OPS}
    for name, options in made.items():
        options.reduceOp = OPS[name]
    return made


REDUCTIONS, COALESCED_REDUCTIONS = _options(dist.AllreduceOptions), _options(dist.AllreduceCoalescedOptions)


def all_gather(joined: Joined, output: Tensor, input: Tensor) -> MovingCollective:
    """Call torch's all-gather into one tensor; members' inputs follow each other in the group's order."""
    source, target = as_bytes(input), as_bytes(output)
    if joined.is_sorted and not overlap(target, source):
        return MovingCollective(work_of(ALL_GATHER(target, source, group=joined.handle, async_op=True)), held=source)
    # Through a buffer: the library writes shares in its own order, and must not overwrite an input that it still reads.
    gathered, source = torch.empty_like(target), source.clone()
    work = work_of(ALL_GATHER(gathered, source, group=joined.handle, async_op=True))

    def finish() -> None:
        rows = target.view(joined.group.size, -1)
        for place, row in zip(joined.order, gathered.view(joined.group.size, -1), strict=True):
            rows[place].copy_(row)

    return MovingCollective(work, finish, source)


def all_gather_lists(joined: Joined, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> MovingCollective:
    """Gather all members' inputs through one buffer, then cut it into each member's list."""
    source = torch.cat([as_bytes(tensor) for tensor in inputs])
    gathered = source.new_empty(joined.group.size * source.numel())
    work = work_of(ALL_GATHER(gathered, source, group=joined.handle, async_op=True))

    def finish() -> None:
        for place, row in zip(joined.order, gathered.view(joined.group.size, -1), strict=True):
            targets = [as_bytes(tensor) for tensor in outputs[place]]
            for target, piece in zip(targets, split(row, [target.numel() for target in targets]), strict=True):
                target.copy_(piece)

    return MovingCollective(work, finish, source)


def gather(joined: Joined, call: Call, issue: Issue) -> MovingCollective:
    """Gather on the root, which has a list."""
    # torch's lists and roots count members in the order of global ranks, not in the program's.
    options = dist.GatherOptions()
    options.rootRank = joined.order.index(call.root)
    targets = [[as_bytes(issue.output[place]) for place in joined.order]] if issue.output else []
    source = [as_bytes(issue.input)]
    return MovingCollective(joined.handle.gather(targets, source, options), held=source)


def scatter(joined: Joined, call: Call, issue: Issue) -> MovingCollective:
    """Scatter from the root, which has a list."""
    options = dist.ScatterOptions()
    options.rootRank = joined.order.index(call.root)
    # torch's order of members, as in `gather`.
    sources = [[as_bytes(issue.input[place]) for place in joined.order]] if issue.input else []
    return MovingCollective(joined.handle.scatter([as_bytes(issue.output)], sources, options), held=sources)


def broadcast(joined: Joined, tensor: Tensor, src: int) -> MovingCollective:
    """Broadcast the tensor of the global rank `src`."""
    options = dist.BroadcastOptions()
    options.rootRank = joined.order.index(joined.group.index(src))
    return MovingCollective(joined.handle.broadcast([as_bytes(tensor)], options))


def send(joined: Joined, tensor: Tensor, dst: int) -> MovingCollective:
    """Send a tensor to the global rank `dst`."""
    source = as_bytes(tensor)
    return MovingCollective(work_of(dist.isend(source, dst, group=joined.handle)), held=source)


def recv(joined: Joined, tensor: Tensor, src: int) -> MovingCollective:
    """Receive a tensor from the global rank `src`."""
    return MovingCollective(work_of(dist.irecv(as_bytes(tensor), src, group=joined.handle)))


def scatter_reduced(reduced: MovingCollective, whole: Tensor, joined: Joined, output: Tensor) -> MovingCollective:
    """Return a reduce-scatter made of `reduced`, an all-reduce of `whole`: its end copies this member's share out."""
    mine = whole.view(joined.group.size, -1)[joined.order[joined.handle.rank()]]
    return reduced.then(lambda: output.detach().view(-1).copy_(mine))


def product(joined: Joined, tensor: Tensor) -> MovingCollective:
    """Multiply complex tensors, as products of their real views would be wrong: gather all, multiply in group order."""
    gathered = tensor.new_empty((joined.group.size, tensor.numel()))
    sent = all_gather(joined, gathered, tensor.detach().clone())

    return sent.then(lambda: tensor.detach().view(-1).copy_(functools.reduce(torch.mul, gathered.unbind())))


def arithmetic_of(tensor: Tensor) -> Tensor:
    """Return a tensor that the libraries can add: the same memory if possible, else a wider copy."""
    wider = WIDER.get(tensor.dtype)
    return as_real(tensor) if wider is None else tensor.detach().to(wider)


def as_real(tensor: Tensor) -> Tensor:
    """Return a view of a complex tensor as real numbers, which the libraries can add; of others the tensor."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else without_grad(tensor)


def divide(tensor: Tensor, by: int) -> None:
    """Divide in place; integers are truncated towards zero."""
    if tensor.is_floating_point():
        tensor.div_(by)
    else:
        tensor.div_(by, rounding_mode="trunc")


def overlap(first: Tensor, second: Tensor) -> bool:
    """Return whether two contiguous tensors share bytes."""
    starts = (first.data_ptr(), second.data_ptr())
    ends = (starts[0] + first.numel() * first.element_size(), starts[1] + second.numel() * second.element_size())
    return max(starts) < min(ends)


def work_of(work: dist.Work | None) -> dist.Work:
    """Return the work of a call; torch returns None only to non-members."""
    assert work is not None, "only a member of a group issues on it"
    return work

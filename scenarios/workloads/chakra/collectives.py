"""Chakra's collectives as verbs of `Rank`, on tensors of the sizes in the traces.

`comm_size` is the size of a rank's input (of its output in a scatter), as ASTRA-sim counts it: the share for an
all-gather, the whole for a reduce-scatter and an all-to-all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scenarios.workloads.chakra.nodes import COMM_TYPES, ROOTS, TraceNode


class _TraceMember(NamedTuple):
    """A member's part in a call: all members' inputs in elements, its place among them, the root's global rank.

    `parts` are the elements of each member's input that go to each member.
    """

    elements: Sequence[int]
    parts: Sequence[Sequence[int]]
    place: int
    root: int
    is_root: bool
    make: Callable[[int], Tensor]

    @property
    def own(self) -> Tensor:
        """Tensor of the member's input."""
        return self.make(self.elements[self.place])

    def own_if_root(self) -> list[Tensor] | None:
        """Return a tensor for each member; None if another member is the root."""
        return [self.make(each) for each in self.elements] if self.is_root else None


def _reduce_scatter(member: _TraceMember) -> Sequence[Any]:
    share = member.elements[member.place] // len(member.elements)
    return member.make(share), member.make(share * len(member.elements))


def _all_to_all(member: _TraceMember) -> Sequence[Any]:
    receives = [each[member.place] for each in member.parts]
    return member.make(sum(receives)), member.own, receives, member.parts[member.place]


def _evenly(elements: int, size: int) -> list[int]:
    return [elements // size + (place < elements % size) for place in range(size)]


# Of calls whose members give, or get, different sizes.
_UNEVEN: dict[str, tuple[str, Callable[[_TraceMember], Sequence[Any]]]] = {
    "all_gather_into_tensor": ("all_gather", lambda member: ([*map(member.make, member.elements)], member.own)),
    "reduce_scatter_tensor": (
        "reduce_scatter",
        lambda member: (member.make(member.parts[0][member.place]), [*map(member.make, member.parts[0])]),
    ),
}
_VERBS: dict[str, tuple[str, Callable[[_TraceMember], Sequence[Any]]]] = {
    "ALL_REDUCE": ("all_reduce", lambda member: [member.own]),
    "REDUCE": ("reduce", lambda member: [member.own, member.root]),
    "ALL_GATHER": ("all_gather_into_tensor", lambda member: [member.make(sum(member.elements)), member.own]),
    "GATHER": ("gather", lambda member: [member.own, member.own_if_root(), member.root]),
    "SCATTER": ("scatter", lambda member: [member.own, member.own_if_root(), member.root]),
    "BROADCAST": ("broadcast", lambda member: [member.own, member.root]),
    "ALL_TO_ALL": ("all_to_all_single", _all_to_all),
    **dict.fromkeys(("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"), ("reduce_scatter_tensor", _reduce_scatter)),
    "BARRIER": ("barrier", lambda member: []),
}


def arguments_of(
    node: TraceNode, members: Sequence[TraceNode], ranks: Sequence[int], rank: int, device: torch.device
) -> tuple[str, Sequence[Any]]:
    """Return the verb of a collective and its arguments.

    Args:
        node: the rank's own node.
        members, ranks: the nodes and global ranks of all members of its group, in group order.
        rank: this rank.
        device: of the tensors.
    """
    dtype: torch.dtype = getattr(torch, str(node.attributes.get("comm_dtype", "uint8")))

    def make(elements: int) -> Tensor:
        return torch.empty(elements, dtype=dtype, device=device)

    elements = [each.number("comm_size") // dtype.itemsize for each in members]
    splits = [each.splits() for each in members]
    both = zip(elements, splits, strict=True)
    parts = [
        _evenly(size, len(ranks)) if each is None else [one // dtype.itemsize for one in each] for size, each in both
    ]
    kind = COMM_TYPES[node.number("comm_type")]
    root = node.number(ROOTS[kind], ranks[0]) if kind in ROOTS else ranks[0]
    verb, arguments = _VERBS[kind]
    if len({*elements}) > 1 or any(splits):
        verb, arguments = _UNEVEN.get(verb, (verb, arguments))
    return verb, arguments(_TraceMember(elements, parts, ranks.index(rank), root, rank == root, make))

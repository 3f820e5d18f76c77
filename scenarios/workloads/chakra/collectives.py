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
    """A member's part in a call: all members' inputs in elements, its place among them, the root's global rank."""

    elements: Sequence[int]
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


def _all_gather(member: _TraceMember) -> Sequence[Any]:
    return member.make(sum(member.elements)), member.own


def _reduce_scatter(member: _TraceMember) -> Sequence[Any]:
    share = member.elements[member.place] // len(member.elements)
    return member.make(share), member.make(share * len(member.elements))


def _all_to_all(member: _TraceMember) -> Sequence[Any]:
    """Return the arguments of an all-to-all in which each member's elements are split evenly."""
    size = len(member.elements)
    sends = [_part(member.elements[member.place], size, place) for place in range(size)]
    receives = [_part(each, size, member.place) for each in member.elements]
    return member.make(sum(receives)), member.own, receives, sends


def _part(elements: int, size: int, place: int) -> int:
    return elements // size + (place < elements % size)


_VERBS: dict[str, tuple[str, Callable[[_TraceMember], Sequence[Any]]]] = {
    "ALL_REDUCE": ("all_reduce", lambda member: [member.own]),
    "REDUCE": ("reduce", lambda member: [member.own, member.root]),
    "ALL_GATHER": ("all_gather_into_tensor", _all_gather),
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
    kind = COMM_TYPES[node.number("comm_type")]
    root = node.number(ROOTS[kind], ranks[0]) if kind in ROOTS else ranks[0]
    verb, arguments = _VERBS[kind]
    return verb, arguments(_TraceMember(elements, ranks.index(rank), root, rank == root, make))

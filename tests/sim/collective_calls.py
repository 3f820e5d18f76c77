"""Calls of whole groups, and collectives of a program, for the tests of this room."""

from __future__ import annotations

from typing import Any

import torch

from scenarios.seam.backend import Work
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


def group_of(ranks: int) -> Group:
    return Group("world", tuple(range(ranks)))


def reduction(op: str, bytes_in: int, ranks: int, element_size: int = 4, root: int = -1) -> list[Call]:
    """`bytes_in` on every member; the output as the operation has it."""
    bytes_out = {"reduce_scatter_tensor": bytes_in // ranks, "all_gather_into_tensor": bytes_in * ranks}
    return [
        Call(
            op=op,
            group=group_of(ranks),
            rank=rank,
            element_size=element_size,
            bytes_in=bytes_in,
            bytes_out=bytes_out.get(op, bytes_in),
            root=root,
        )
        for rank in range(ranks)
    ]


def broadcast(size_bytes: int, ranks: int, root: int) -> list[Call]:
    return [
        Call(
            op="broadcast",
            group=group_of(ranks),
            rank=rank,
            bytes_in=size_bytes if rank == root else 0,
            bytes_out=0 if rank == root else size_bytes,
            root=root,
        )
        for rank in range(ranks)
    ]


def make_rooted(op: str, share_bytes: int, ranks: int, root: int) -> list[Call]:
    """gather or scatter of equal shares."""
    calls = []
    for rank in range(ranks):
        whole = share_bytes * ranks if rank == root else 0
        sizes: dict[str, Any] = {"bytes_in": share_bytes, "bytes_out": whole}
        if op == "scatter":
            sizes = {"bytes_in": whole, "bytes_out": share_bytes}
        calls.append(Call(op=op, group=group_of(ranks), rank=rank, root=root, **sizes))
    return calls


def all_to_all(sizes: list[list[int]], op: str = "all_to_all_single") -> list[Call]:
    """Make a call that sends `sizes[source][target]` bytes."""
    ranks = len(sizes)
    return [
        Call(
            op=op,
            group=group_of(ranks),
            rank=rank,
            bytes_in=sum(sizes[rank]),
            bytes_out=sum(row[rank] for row in sizes),
            send_bytes=tuple(sizes[rank]),
            recv_bytes=tuple(row[rank] for row in sizes),
        )
        for rank in range(ranks)
    ]


def in_parts(op: str, sizes: list[int], ranks: int, element_size: int = 4) -> list[Call]:
    """Tensors of these bytes: of a list, one for each member."""
    is_even, of_list = sizes.count(sizes[0]) == len(sizes), op in ("reduce_scatter", "all_gather")
    parts, total = () if of_list and is_even else tuple(sizes), sum(sizes)
    gathers, made = op.startswith("all_gather"), []
    for rank in range(ranks):
        own = sizes[rank] if of_list else total // ranks
        given, got = (own, total) if gathers else (total, own)
        fields: dict[str, Any] = {"element_size": element_size, "parts": parts}
        made.append(Call(op=op, group=group_of(ranks), rank=rank, bytes_in=given, bytes_out=got, **fields))
    return made


def barrier(ranks: int, op: str = "barrier") -> list[Call]:
    return [Call(op=op, group=group_of(ranks), rank=rank) for rank in range(ranks)]


def send_recv(size_bytes: int, ranks: int, source: int, target: int) -> list[Call]:
    group = group_of(ranks)
    return [
        Call(op="send", group=group, rank=source, bytes_in=size_bytes, root=target),
        Call(op="recv", group=group, rank=target, bytes_out=size_bytes, root=source),
    ]


def issue(rank: Rank, op: str, share: int) -> Work[Any]:
    """Issue a collective of the world without values; `share` elements are what each rank gives or gets of all."""
    small, large = (torch.empty(count, device="meta") for count in (share, share * rank.world.size))
    match op:
        case "all_reduce":
            return rank.all_reduce(large)
        case "reduce_scatter":
            return rank.reduce_scatter_tensor(small, large)
        case "all_gather":
            return rank.all_gather_into_tensor(large, small)
        case "all_to_all":
            return rank.all_to_all_single(torch.empty_like(large), large)
        case "broadcast":
            return rank.broadcast(large, 0)
    return rank.barrier()

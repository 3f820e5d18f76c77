"""Collective calls as data: the same sentences in both worlds when they do not fit; moving the bytes is left to them.

Semantics follow torch.distributed 2.13. What needs only one rank's arguments is checked when the call is issued (see
`arguments`); `disagreement` compares the calls of all members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from torch import Tensor

from scenarios.seam.arguments import (
    check_alike,
    check_expected_splits,
    check_list,
    check_output,
    check_rank,
    check_reduce,
    check_splits,
    check_target,
    check_tensor,
    dtype_name,
    size_bytes,
)
from scenarios.seam.errors import CollectiveError
from scenarios.seam.rank import Group

# What a wrong argument raises on the rank that gave it.
MISTAKES = (TypeError, ValueError, CollectiveError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One member's side of one collective, in bytes; `send_bytes` and `recv_bytes` by group rank, for all-to-all.
    Where members stand for several ranks, `expected_send` and `expected_recv` are what goes to, and comes from, each.

    `root` is a group rank: the source of a broadcast, the peer of a send or recv, else -1. `mistake` is what this
    rank's own arguments are refused with: such a call takes its place in the group's order, and all members fail.
    """

    op: str
    group: Group
    rank: int
    label: str = ""
    dtype: str = ""
    device: str = ""
    element_size: int = 1
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_sent: int = 0
    send_bytes: tuple[int, ...] = ()
    recv_bytes: tuple[int, ...] = ()
    expected_send: tuple[float, ...] = ()
    expected_recv: tuple[float, ...] = ()
    reduce: str = ""
    root: int = -1
    mistake: str = ""

    @property
    def name(self) -> str:
        """The operation as a person reads it in an error."""
        return f"{self.op} '{self.label}'" if self.label else self.op


def all_to_all_single_call(
    rank: int,
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[float] | None,
    input_split_sizes: Sequence[float] | None,
    group: Group,
    label: str,
) -> Call:
    """The checked call; row splits of both sides become bytes by group rank."""
    op = "all_to_all_single"
    check_output(op, rank, "output", output)
    check_tensor(op, rank, "input", input)
    check_alike(op, rank, [output, input])
    if group.counts:
        sides = ("input", input, input_split_sizes), ("output", output, output_split_sizes)
        return _exchange(op, rank, group, label, input, *(_expected_bytes(rank, *side, group) for side in sides))
    sends = check_splits(op, rank, "input", input, input_split_sizes, group.size)
    recvs = check_splits(op, rank, "output", output, output_split_sizes, group.size)
    return _exchange(op, rank, group, label, input, _times(sends, input), _times(recvs, output))


def all_to_all_call(rank: int, output_tensor_list: object, input_tensor_list: object, group: Group, label: str) -> Call:
    """The checked call of the list form; uneven and complex tensors are welcome."""
    op = "all_to_all"
    outputs = check_list(op, rank, "output_tensor_list", output_tensor_list, group.size, check_output)
    inputs = check_list(op, rank, "input_tensor_list", input_tensor_list, group.size)
    check_alike(op, rank, [*outputs, *inputs])
    sends = [size_bytes(tensor) for tensor in inputs]
    return _exchange(op, rank, group, label, inputs[0], sends, [size_bytes(tensor) for tensor in outputs])


def reduction_call(op: str, rank: int, output: Tensor, input: Tensor, reduce: object, group: Group, label: str) -> Call:
    """all_reduce, reduce_scatter_tensor or all_gather_into_tensor (which reduces nothing: `reduce` is None).

    Raises:
        CollectiveError: sizes that do not fit the group, a reduction that is unknown or not for this dtype.
    """
    if op == "all_reduce":
        check_target(op, rank, "tensor", output)
    else:
        check_output(op, rank, "output", output)
        check_tensor(op, rank, "input", input)
        check_alike(op, rank, [output, input])
        _check_share(op, rank, output.numel(), input.numel(), group.size)
    return Call(
        op=op,
        group=group,
        rank=rank,
        label=label,
        dtype=dtype_name(input),
        device=input.device.type,
        element_size=input.element_size(),
        bytes_in=size_bytes(input),
        bytes_out=size_bytes(output),
        bytes_sent=size_bytes(input),
        reduce="" if op == "all_gather_into_tensor" else check_reduce(op, rank, reduce, input),
    )


def _check_share(op: str, rank: int, output: int, input: int, size: int) -> None:
    """Nothing, if the elements of a reduce-scatter's or gather's two sides fit a group of that size."""
    times, parts = (1, size) if op == "reduce_scatter_tensor" else (size, 1)
    if output * parts != input * times:
        raise CollectiveError(
            f"rank {rank}: {op}: output has {output} elements and input {input},"
            f" expected {input * times / parts:g} for a group of {size}"
        )


def rooted_call(op: str, rank: int, tensor: Tensor, root: int, group: Group, label: str) -> Call:
    """broadcast, send or recv; `root` is a global rank.

    Raises:
        TypeError: `root` is no int.
        CollectiveError: `root` is not in the group, or is this rank itself in a send or recv.
    """
    (check_tensor if op == "send" else check_target)(op, rank, "tensor", tensor)
    root = check_rank(op, rank, "dst" if op == "send" else "src", root)
    if root not in group:
        raise CollectiveError(f"rank {rank}: {op}: rank {root} is not in group {group.name} of {list(group.ranks)}")
    if op != "broadcast" and root == rank:
        raise CollectiveError(f"rank {rank}: {op}: a rank cannot {op} to itself")
    size = size_bytes(tensor)
    gives = rank == root if op == "broadcast" else op == "send"
    return Call(
        op=op,
        group=group,
        rank=rank,
        label=label,
        dtype=dtype_name(tensor),
        device=tensor.device.type,
        element_size=tensor.element_size(),
        bytes_in=size if gives else 0,
        bytes_out=0 if gives else size,
        bytes_sent=size if gives else 0,
        root=group.index(root),
    )


def barrier_call(rank: int, group: Group, label: str) -> Call:
    """A barrier moves nothing."""
    return Call(op="barrier", group=group, rank=rank, label=label)


def disagreement(calls: Mapping[int, Call]) -> str | None:
    """One sentence when the members' calls (by group rank) do not fit together, else None.

    The same calls give the same sentence, whoever asks and in whatever order they came.
    """
    ordered = [calls[member] for member in sorted(calls)]
    first = ordered[0]
    for call in ordered:
        if call.mistake:
            return call.mistake
    if first.op in ("send", "recv"):
        return _pair_disagreement(ordered)
    for call in ordered:
        if _essentials(call) != _essentials(first):
            return f"group {first.group.name}: {_describe(first)}, but {_describe(call)}"
    if first.expected_send:
        return _expected_disagreement(ordered, sorted(calls))
    return _split_disagreement(calls) if first.send_bytes else None


_EQUAL = frozenset({"all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"})


def _essentials(call: Call) -> tuple[object, ...]:
    """What must be the same on all members."""
    size = call.bytes_in if call.op in _EQUAL else call.bytes_in + call.bytes_out if call.op == "broadcast" else 0
    return call.op, call.root, call.reduce, call.dtype, call.device, size


def _pair_disagreement(calls: Sequence[Call]) -> str | None:
    """Of a send and its recv."""
    sender, receiver = (next((call for call in calls if call.op == op), None) for op in ("send", "recv"))
    if sender is None or receiver is None:
        return None
    if (sender.bytes_in, sender.dtype) != (receiver.bytes_out, receiver.dtype):
        return (
            f"rank {sender.rank} sends {sender.bytes_in} bytes of {sender.dtype} to rank {receiver.rank},"
            f" which expects {receiver.bytes_out} of {receiver.dtype}"
        )
    return None


def _split_disagreement(calls: Mapping[int, Call]) -> str | None:
    members = sorted(calls)
    for source in members:
        for target in members:
            sender, receiver = calls[source], calls[target]
            sent, expected = sender.send_bytes[target], receiver.recv_bytes[source]
            if sent != expected:
                return (
                    f"group {sender.group.name}: {sender.name}: rank {sender.rank} sends {sent} bytes to rank"
                    f" {receiver.rank}, which expects {expected}"
                )
    return None


def _expected_disagreement(calls: Sequence[Call], members: Sequence[int]) -> str | None:
    sent = np.array([call.expected_send for call in calls])[:, members]
    expected = np.array([call.expected_recv for call in calls])[:, members].T
    for source, target in np.argwhere(~np.isclose(sent, expected, atol=0))[:1].tolist():
        sender, receiver = calls[source], calls[target]
        return (
            f"group {sender.group.name}: {sender.name}: rank {sender.rank} sends {sent[source, target]:g} bytes to rank"
            f" {receiver.rank}, which expects {expected[source, target]:g}"
        )
    return None


def _describe(call: Call) -> str:
    details = [f"{call.bytes_in + call.bytes_out if call.op == 'broadcast' else call.bytes_in} bytes", call.dtype]
    details += [call.device] if call.device == "meta" else []
    details += [call.reduce] if call.reduce else []
    details += [f"root {call.group.ranks[call.root]}"] if call.root >= 0 else []
    return f"rank {call.rank} calls {call.name} ({', '.join(filter(None, details))})"


def _exchange(
    op: str, rank: int, group: Group, label: str, example: Tensor, sends: Sequence[float], recvs: Sequence[float]
) -> Call:
    """`sends` and `recvs` in bytes, by member; expected ones where members stand for several ranks."""
    given = group.total(sends)
    call = Call(
        op=op,
        group=group,
        rank=rank,
        label=label,
        dtype=dtype_name(example),
        device=example.device.type,
        element_size=example.element_size(),
        bytes_in=round(given),
        bytes_out=round(group.total(recvs)),
        bytes_sent=round(given - sends[group.index(rank)]),
    )
    if group.counts:
        return replace(call, expected_send=tuple(sends), expected_recv=tuple(recvs))
    return replace(call, send_bytes=tuple(map(int, sends)), recv_bytes=tuple(map(int, recvs)))


def _expected_bytes(rank: int, name: str, tensor: Tensor, splits: Sequence[float] | None, group: Group) -> list[float]:
    rows = check_expected_splits("all_to_all_single", rank, name, tensor, splits, group)
    row_bytes = _row_bytes(tensor)
    return [split * row_bytes for split in rows]


def _times(rows: Sequence[int], of: Tensor) -> list[int]:
    row_bytes = _row_bytes(of)
    return [split * row_bytes for split in rows]


def _row_bytes(tensor: Tensor) -> int:
    return tensor.element_size() * prod(tensor.shape[1:])


def never_awaited(rank: int, what: str) -> str:
    """The error at the end of a program for a Work that nobody awaited."""
    return f"rank {rank}: {what} was issued but never awaited"


def in_pair(call: Call, pair: Group) -> Call:
    """A send or recv as one of a group of two, source first; its root is the other one."""
    return replace(call, group=pair, root=1 - pair.index(call.rank))

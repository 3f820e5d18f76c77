"""Collective calls as data: checked once, the same sentences in both worlds; moving the bytes is left to them.

Semantics follow torch.distributed 2.13. A check that needs only one rank's arguments is made when the call is issued;
`disagreement` compares the calls of all members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.errors import CollectiveError, ProgramError
from scenarios.rank import Group

REDUCE_OPS: dict[object, str] = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One member's side of one collective, in bytes; `send_bytes` and `recv_bytes` by group rank, for all-to-all.

    `root` is a group rank: the source of a broadcast, the peer of a send or recv, else -1.
    """

    op: str
    group: Group
    rank: int
    label: str = ""
    dtype: str = ""
    element_size: int = 1
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_sent: int = 0
    send_bytes: tuple[int, ...] = ()
    recv_bytes: tuple[int, ...] = ()
    reduce: str = ""
    root: int = -1

    @property
    def name(self) -> str:
        """The operation as a person reads it in an error."""
        return f"{self.op} '{self.label}'" if self.label else self.op


def size_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def dtype_name(tensor: Tensor) -> str:
    """ "float32" for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def check_tensor(op: str, rank: int, name: str, value: object) -> Tensor:
    """The value, if it is a contiguous tensor.

    Raises:
        TypeError: it is no tensor.
        CollectiveError: it is not contiguous.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"rank {rank}: {op}: {name} must be a tensor, got {type(value).__name__}")
    if not value.is_contiguous():
        raise CollectiveError(f"rank {rank}: {op}: {name} of shape {tuple(value.shape)} must be contiguous")
    return value


def check_list(op: str, rank: int, name: str, value: object, size: int) -> list[Tensor]:
    """The value, if it is a list of `size` contiguous tensors.

    Raises:
        TypeError: it is no list, or holds something else than tensors.
        CollectiveError: its length is not the group's size.
    """
    if not isinstance(value, list):
        raise TypeError(f"rank {rank}: {op}: {name} must be a list of tensors, got {type(value).__name__}")
    if len(value) != size:
        raise CollectiveError(f"rank {rank}: {op}: {name} has {len(value)} tensors, expected the group's size {size}")
    return [check_tensor(op, rank, f"{name}[{index}]", item) for index, item in enumerate(value)]


def check_same_dtype(op: str, rank: int, tensors: Sequence[Tensor]) -> None:
    """Nothing, if all tensors have one dtype; ValueError otherwise."""
    dtypes = list(dict.fromkeys(dtype_name(tensor) for tensor in tensors))
    if len(dtypes) > 1:
        raise ValueError(f"rank {rank}: {op}: all tensors must have one dtype, got {' and '.join(dtypes)}")


def check_splits(op: str, rank: int, name: str, tensor: Tensor, splits: Sequence[int] | None, size: int) -> list[int]:
    """Rows of `tensor` for each member; without `splits`, an equal share.

    Raises:
        CollectiveError: wrong number of splits, a negative one, or a sum that is not the first dimension.
    """
    rows = tensor.shape[0] if tensor.dim() else tensor.numel()
    if splits is None or len(splits) == 0:
        if rows % size:
            raise CollectiveError(
                f"rank {rank}: {op}: the first dimension {rows} of {name} is not divisible by the group's size {size};"
                " give split sizes"
            )
        return [rows // size] * size
    if len(splits) != size:
        raise CollectiveError(
            f"rank {rank}: {op}: {name} has {len(splits)} split sizes, expected the group's size {size}"
        )
    if min(splits) < 0:
        raise CollectiveError(f"rank {rank}: {op}: {name} split sizes {list(splits)} must not be negative")
    if sum(splits) != rows:
        raise CollectiveError(
            f"rank {rank}: {op}: {name} split sizes {list(splits)} add up to {sum(splits)},"
            f" expected the first dimension {rows}"
        )
    return [int(split) for split in splits]


def all_to_all_single_call(
    rank: int,
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Group,
    label: str,
) -> Call:
    """The checked call; row splits of both sides become bytes by group rank."""
    op = "all_to_all_single"
    check_tensor(op, rank, "output", output)
    check_tensor(op, rank, "input", input)
    check_same_dtype(op, rank, [output, input])
    sends = check_splits(op, rank, "input", input, input_split_sizes, group.size)
    recvs = check_splits(op, rank, "output", output, output_split_sizes, group.size)
    return _exchange(op, rank, group, label, input, _row_bytes(input, sends), _row_bytes(output, recvs))


def all_to_all_call(rank: int, output_tensor_list: object, input_tensor_list: object, group: Group, label: str) -> Call:
    """The checked call of the list form; uneven and complex tensors are welcome."""
    op = "all_to_all"
    outputs = check_list(op, rank, "output_tensor_list", output_tensor_list, group.size)
    inputs = check_list(op, rank, "input_tensor_list", input_tensor_list, group.size)
    check_same_dtype(op, rank, [*outputs, *inputs])
    sends = [size_bytes(tensor) for tensor in inputs]
    return _exchange(op, rank, group, label, inputs[0], sends, [size_bytes(tensor) for tensor in outputs])


def reduction_call(op: str, rank: int, output: Tensor, input: Tensor, reduce: object, group: Group, label: str) -> Call:
    """all_reduce, reduce_scatter_tensor or all_gather_into_tensor (which reduces nothing: `reduce` is None).

    Raises:
        CollectiveError: sizes that do not fit the group, a reduction that is unknown or not for this dtype.
    """
    check_tensor(op, rank, "output", output)
    check_tensor(op, rank, "input", input)
    check_same_dtype(op, rank, [output, input])
    factor = {"reduce_scatter_tensor": (1, group.size), "all_gather_into_tensor": (group.size, 1)}.get(op, (1, 1))
    if output.numel() * factor[1] != input.numel() * factor[0]:
        raise CollectiveError(
            f"rank {rank}: {op}: output has {output.numel()} elements and input {input.numel()},"
            f" expected {input.numel() * factor[0] / factor[1]:g} for a group of {group.size}"
        )
    return Call(
        op=op,
        group=group,
        rank=rank,
        label=label,
        dtype=dtype_name(input),
        element_size=input.element_size(),
        bytes_in=size_bytes(input),
        bytes_out=size_bytes(output),
        bytes_sent=size_bytes(input),
        reduce="" if reduce is None else _reduce_name(op, rank, reduce, input),
    )


def rooted_call(op: str, rank: int, tensor: Tensor, root: int, group: Group, label: str) -> Call:
    """broadcast, send or recv; `root` is a global rank.

    Raises:
        CollectiveError: `root` is not in the group, or is this rank itself in a send or recv.
    """
    check_tensor(op, rank, "tensor", tensor)
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
    """One sentence when the members' calls (by group rank) do not fit together, else None."""
    first = calls[min(calls)]
    if first.op in ("send", "recv"):
        return _pair_disagreement(calls)
    for call in calls.values():
        if (call.op, call.root, call.reduce, call.dtype) != (first.op, first.root, first.reduce, first.dtype):
            return f"group {first.group.name}: {_describe(first)}, but {_describe(call)}"
        if call.op in _EQUAL and (call.bytes_in, call.bytes_out) != (first.bytes_in, first.bytes_out):
            return f"group {first.group.name}: {_describe(first)}, but {_describe(call)}"
        if call.op == "broadcast" and call.bytes_in + call.bytes_out != first.bytes_in + first.bytes_out:
            return f"group {first.group.name}: {_describe(first)}, but {_describe(call)}"
    return _split_disagreement(calls) if first.send_bytes else None


_EQUAL = frozenset({"all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"})


def _pair_disagreement(calls: Mapping[int, Call]) -> str | None:
    """Of a send and its recv."""
    sender, receiver = (next((call for call in calls.values() if call.op == op), None) for op in ("send", "recv"))
    if sender is None or receiver is None:
        return None
    if (sender.bytes_in, sender.dtype) != (receiver.bytes_out, receiver.dtype):
        return (
            f"rank {sender.rank} sends {sender.bytes_in} bytes of {sender.dtype} to rank {receiver.rank},"
            f" which expects {receiver.bytes_out} of {receiver.dtype}"
        )
    return None


def _split_disagreement(calls: Mapping[int, Call]) -> str | None:
    for source, sender in calls.items():
        for target, receiver in calls.items():
            sent, expected = sender.send_bytes[target], receiver.recv_bytes[source]
            if sent != expected:
                return (
                    f"group {sender.group.name}: {sender.name}: rank {sender.rank} sends {sent} bytes to rank"
                    f" {receiver.rank}, which expects {expected}"
                )
    return None


def _describe(call: Call) -> str:
    details = [f"{call.bytes_in + call.bytes_out if call.op == 'broadcast' else call.bytes_in} bytes", call.dtype]
    details += [call.reduce] if call.reduce else []
    details += [f"root {call.group.ranks[call.root]}"] if call.root >= 0 else []
    return f"rank {call.rank} calls {call.name} ({', '.join(filter(None, details))})"


def _exchange(
    op: str, rank: int, group: Group, label: str, example: Tensor, sends: list[int], recvs: list[int]
) -> Call:
    me = group.index(rank)
    return Call(
        op=op,
        group=group,
        rank=rank,
        label=label,
        dtype=dtype_name(example),
        element_size=example.element_size(),
        bytes_in=sum(sends),
        bytes_out=sum(recvs),
        bytes_sent=sum(sends) - sends[me],
        send_bytes=tuple(sends),
        recv_bytes=tuple(recvs),
    )


def _row_bytes(tensor: Tensor, splits: list[int]) -> list[int]:
    row = tensor.element_size()
    for extent in tensor.shape[1:]:
        row *= extent
    return [split * row for split in splits]


def _reduce_name(op: str, rank: int, reduce: object, tensor: Tensor) -> str:
    name = REDUCE_OPS.get(reduce)
    if name is None:
        raise CollectiveError(f"rank {rank}: {op}: op {reduce} is not one of {', '.join(REDUCE_OPS.values())}")
    if (name in ("min", "max") and tensor.is_complex()) or tensor.dtype == torch.bool:
        raise CollectiveError(f"rank {rank}: {op}: op {name} is not defined for {dtype_name(tensor)}")
    return name


def check_group(rank: int, ranks: Sequence[int], world_size: int) -> tuple[int, ...]:
    """The ranks of a new group, in order; CollectiveError if one is missing from the world or named twice."""
    members = tuple(int(member) for member in ranks)
    if not members or len(set(members)) != len(members) or min(members) < 0 or max(members) >= world_size:
        raise CollectiveError(
            f"rank {rank}: new_group: ranks {list(members)} must be distinct ranks of a world of {world_size}"
        )
    return members


def check_stream(rank: int, name: str, taken: Sequence[str]) -> None:
    """Nothing, if a stream of that name is still to be had; ProgramError otherwise."""
    if not name or name in taken:
        raise ProgramError(f"rank {rank}: stream: '{name}' must be a new name; there are {', '.join(taken)}")


def not_a_member(op: str, rank: int, group: Group) -> str:
    """The warning to a rank that calls a collective of a group it is not in."""
    return f"rank {rank}: {op}: not a member of group {group.name} of {list(group.ranks)}; nothing is done"


def never_awaited(rank: int, what: str) -> str:
    """The error at the end of a program for a Work that nobody awaited."""
    return f"rank {rank}: {what} was issued but never awaited"


def in_pair(call: Call, pair: Group) -> Call:
    """A send or recv as one of a group of two, source first; its root is the other one."""
    return replace(call, group=pair, root=1 - pair.index(call.rank))

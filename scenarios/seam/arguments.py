"""Checks a verb's arguments on the calling rank.

Semantics follow torch.distributed 2.13. Every error sentence names the rank, the verb, the value and what was expected.
An `Issue` identifies the rank, verb and group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.group import Group
from scenarios.seam.roles import NO_PURPOSE, ROLES, Purpose

REDUCE_OPS: dict[object, str] = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
}
# Dtypes that both worlds can reduce; others are only moved.
_REDUCED = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128}
    | {torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64}
)


Splits = Sequence[float] | None


@dataclass(slots=True)  # not frozen: made for every call, and a frozen one takes three times as long
class Issue:
    """A verb's call on one rank, with its arguments, unchecked.

    `output` is also the result of its Work. `splits` are those of output and input. `root` is a global rank: the source
    of a broadcast or recv, the target of a send.
    """

    op: str
    rank: int
    group: Group
    label: str = ""
    purpose: Purpose = NO_PURPOSE
    input: Any = None
    output: Any = None
    splits: tuple[Splits, Splits] = (None, None)
    reduce: object = None
    root: object = -1

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.op}"


def size_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def dtype_name(tensor: Tensor) -> str:
    """Return "float32" for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def check_tensor(issue: Issue, name: str, value: object) -> Tensor:
    """Return the value if it is a dense, contiguous tensor.

    Raises:
        TypeError: it is no tensor.
        CollectiveError: it is sparse, quantized or not contiguous.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{issue}: {name} must be a tensor, got {type(value).__name__}")
    if value.layout is not torch.strided or value.is_quantized:
        kind = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
        raise CollectiveError(f"{issue}: {name} must be a dense tensor, got a {kind} one")
    if not value.is_contiguous():
        raise CollectiveError(f"{issue}: {name} of shape {tuple(value.shape)} must be contiguous")
    return value


def check_target(issue: Issue, name: str, value: object) -> Tensor:
    """Return the value if it is a tensor that can be written in place.

    Raises:
        TypeError, CollectiveError: as `check_tensor`; or it is the conjugate or negative view of another tensor.
    """
    tensor = check_tensor(issue, name, value)
    if tensor.is_conj() or tensor.is_neg():
        kind, resolve = ("conjugate", "resolve_conj") if tensor.is_conj() else ("negative", "resolve_neg")
        raise CollectiveError(
            f"{issue}: {name} is a {kind} view, which cannot be written in place;"
            f" expected a tensor as {resolve}() returns it"
        )
    return tensor


def check_output(issue: Issue, name: str, value: object) -> Tensor:
    """Return the value if it is a tensor that can receive data.

    Raises:
        TypeError, CollectiveError: as `check_target`; or it is a leaf that requires grad, while gradients are recorded.
    """
    tensor = check_target(issue, name, value)
    if tensor.requires_grad and tensor.is_leaf and torch.is_grad_enabled():
        raise CollectiveError(f"{issue}: {name} is a leaf that requires grad; give it detached")
    return tensor


def check_list(
    issue: Issue, name: str, value: object, check: Callable[[Issue, str, object], Tensor] = check_tensor
) -> list[Tensor]:
    """Return the value if it is a list of one tensor for each member, all of which pass `check`.

    Raises:
        TypeError: it is no list, or holds something other than tensors.
        CollectiveError: its length is not the group's size.
    """
    size = issue.group.size
    if isinstance(value, list) and len(value) != size:
        raise CollectiveError(f"{issue}: {name} has {len(value)} tensors, expected the group's size {size}")
    return check_tensors(issue, name, value, check)


def check_tensors(
    issue: Issue, name: str, value: object, check: Callable[[Issue, str, object], Tensor] = check_tensor
) -> list[Tensor]:
    """Return the value if it is a non-empty list of tensors, all of which pass `check`.

    Raises:
        TypeError: it is no list, or holds something other than tensors.
        CollectiveError: it is empty.
    """
    if not isinstance(value, list):
        raise TypeError(f"{issue}: {name} must be a list of tensors, got {type(value).__name__}")
    if not value:
        raise CollectiveError(f"{issue}: {name} is empty, expected at least one tensor")
    return [check(issue, f"{name}[{index}]", item) for index, item in enumerate(value)]


def check_same_kind(issue: Issue, tensors: Sequence[Tensor]) -> None:
    """Raise ValueError unless all tensors have one dtype, CollectiveError unless they live on one kind of device."""
    dtype, device = tensors[0].dtype, tensors[0].device
    for tensor in tensors:
        if tensor.dtype is not dtype or tensor.device != device:
            break
    else:
        return  # the usual case, kept fast: it is on every call's path
    if len({tensor.dtype for tensor in tensors}) > 1:
        dtypes = dict.fromkeys(dtype_name(tensor) for tensor in tensors)
        raise ValueError(f"{issue}: all tensors must have one dtype, got {' and '.join(dtypes)}")
    if len({tensor.device.type for tensor in tensors}) > 1:
        devices = dict.fromkeys(tensor.device.type for tensor in tensors)
        raise CollectiveError(f"{issue}: all tensors must be on one device, got {' and '.join(devices)}")


def split_bytes(issue: Issue, name: str, tensor: Tensor, splits: Splits) -> tuple[int, ...]:
    """Return the bytes of `tensor` for each member, from its split sizes in rows; equal shares if there are none.

    Raises:
        TypeError: `splits` is no sequence of ints (tensors and bools do not count).
        CollectiveError: wrong number of splits, a negative split, or a sum that is not the first dimension.
    """
    rows, size = tensor.shape[0] if tensor.dim() else tensor.numel(), len(issue.group.ranks)
    rows_of = [] if splits is None else _whole_numbers(issue, f"{name} split sizes", splits)
    if not rows_of:
        if rows % size:
            raise CollectiveError(
                f"{issue}: the first dimension {rows} of {name} is not divisible by the group's size {size};"
                " give split sizes"
            )
        return (rows // size * _row_bytes(tensor),) * size
    if len(rows_of) != size:
        raise CollectiveError(f"{issue}: {name} has {len(rows_of)} split sizes, expected the group's size {size}")
    if min(rows_of) < 0:
        raise CollectiveError(f"{issue}: {name} split sizes {rows_of} must not be negative")
    if sum(rows_of) != rows:
        raise CollectiveError(
            f"{issue}: {name} split sizes {rows_of} add up to {sum(rows_of)}, expected the first dimension {rows}"
        )
    width = _row_bytes(tensor)
    return tuple([rows * width for rows in rows_of])


def expected_split_bytes(issue: Issue, name: str, tensor: Tensor, splits: Splits) -> tuple[float, ...]:
    """Return the expected bytes of `tensor` for each rank that a member represents; equal shares if there are no
    splits.

    Raises:
        CollectiveError: wrong number of splits, a negative split, or a rounded sum that is not the first dimension.
    """
    group = issue.group
    rows, members = tensor.shape[0], len(group.ranks)
    if not splits:
        return (rows / group.size * _row_bytes(tensor),) * members
    total = group.total(splits) if len(splits) == members else -1
    if min(splits) < 0 or round(total) != rows:
        raise CollectiveError(
            f"{issue}: {name} has {len(splits)} split sizes, together {total:g}, expected one for each of"
            f" {members} members, together the first dimension {rows}"
        )
    width = _row_bytes(tensor)
    return tuple([rows_of * width for rows_of in splits])


def _row_bytes(tensor: Tensor) -> int:
    return tensor.element_size() * prod(tensor.shape[1:])


def _whole_numbers(issue: object, name: str, values: object) -> list[int]:
    if not isinstance(values, (list, tuple)) and (not isinstance(values, Sequence) or isinstance(values, str)):
        raise TypeError(f"{issue}: {name} must be a list of ints, got {type(values).__name__}")
    for index, value in enumerate(values):
        if not _is_whole(value):
            raise TypeError(f"{issue}: {name} must be a list of ints, got {type(value).__name__} at index {index}")
    return [int(value) for value in values]


def _is_whole(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def check_reduce(issue: Issue, reduce: object, tensor: Tensor) -> str:
    """Return the reduction's name.

    Raises:
        CollectiveError: `reduce` is no reduction, or is not defined for the tensor's dtype.
    """
    name = REDUCE_OPS.get(reduce) if isinstance(reduce, ReduceOp.RedOpType) else None
    if name is None:
        raise CollectiveError(f"{issue}: op {reduce} is not one of {', '.join(REDUCE_OPS.values())}")
    if (name in ("min", "max") and tensor.is_complex()) or tensor.dtype not in _REDUCED:
        raise CollectiveError(f"{issue}: op {name} is not defined for {dtype_name(tensor)}")
    return name


def check_rank(issue: Issue, name: str, value: object) -> int:
    """Return a rank's number; TypeError if it is no int (tensors and bools do not count)."""
    if not _is_whole(value):
        raise TypeError(f"{issue}: {name} must be an int, got {type(value).__name__}")
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_label(issue: object, label: object) -> None:
    """Raise TypeError unless a label is a str."""
    if not isinstance(label, str):
        raise TypeError(f"{issue}: label must be a str, got {type(label).__name__}")


def check_role(issue: object, role: object) -> None:
    """Raise ValueError unless a role is one of `ROLES`, or "" for none."""
    if role != "" and role not in ROLES:
        raise ValueError(f"{issue}: role = {role!r}: expected one of {', '.join(ROLES)}")


def check_group(rank: int, ranks: object, world_size: int) -> tuple[int, ...]:
    """Return the ranks of a new group, in order.

    Raises:
        TypeError: `ranks` is no sequence of ints.
        CollectiveError: a rank is outside the world or listed twice, or the list is empty.
    """
    members = tuple(_whole_numbers(f"rank {rank}: new_group", "ranks", ranks))
    if not members or len(set(members)) != len(members) or min(members) < 0 or max(members) >= world_size:
        raise CollectiveError(
            f"rank {rank}: new_group: ranks {list(members)} must be distinct ranks of a world of {world_size}"
        )
    return members


def check_stream(rank: int, name: object, taken: Sequence[str]) -> str:
    """Return the name of a new stream; TypeError if it is no str, ProgramError if it is empty or taken."""
    if not isinstance(name, str):
        raise TypeError(f"rank {rank}: stream: name must be a str, got {type(name).__name__}")
    if not name or name in taken:
        raise ProgramError(f"rank {rank}: stream: '{name}' must be a new name; there are {', '.join(taken)}")
    return name

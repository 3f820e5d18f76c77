"""Arguments of the verbs, checked on the rank that gives them; whether the members' calls fit together is in `calls`.

Semantics follow torch.distributed 2.13. Every sentence names the rank, the verb, what was given and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.rank import Group

REDUCE_OPS: dict[object, str] = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
}
# What both worlds add; everything else only moves.
_REDUCED = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128}
    | {torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64}
)


def size_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def dtype_name(tensor: Tensor) -> str:
    """ "float32" for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def check_tensor(op: str, rank: int, name: str, value: object) -> Tensor:
    """The value, if it is a dense, contiguous tensor.

    Raises:
        TypeError: it is no tensor.
        CollectiveError: it is sparse, quantized or not contiguous.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"rank {rank}: {op}: {name} must be a tensor, got {type(value).__name__}")
    if value.layout is not torch.strided or value.is_quantized:
        kind = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
        raise CollectiveError(f"rank {rank}: {op}: {name} must be a dense tensor, got a {kind} one")
    if not value.is_contiguous():
        raise CollectiveError(f"rank {rank}: {op}: {name} of shape {tuple(value.shape)} must be contiguous")
    return value


def check_target(op: str, rank: int, name: str, value: object) -> Tensor:
    """The value, if it is a tensor that can be written in place; what a parameter holds is replaced without a gradient.

    Raises:
        TypeError, CollectiveError: as `check_tensor`; or it is the conjugate or negative view of another tensor.
    """
    tensor = check_tensor(op, rank, name, value)
    if tensor.is_conj() or tensor.is_neg():
        kind = "conjugate" if tensor.is_conj() else "negative"
        raise CollectiveError(f"rank {rank}: {op}: {name} must be memory of its own, got a {kind} view")
    return tensor


def check_output(op: str, rank: int, name: str, value: object) -> Tensor:
    """The value, if it is a tensor that takes what others send.

    Raises:
        TypeError, CollectiveError: as `check_target`; or it is a leaf that requires grad, while gradients are recorded.
    """
    tensor = check_target(op, rank, name, value)
    if tensor.requires_grad and tensor.is_leaf and torch.is_grad_enabled():
        raise CollectiveError(f"rank {rank}: {op}: {name} is a leaf that requires grad; give it detached")
    return tensor


def check_list(
    op: str,
    rank: int,
    name: str,
    value: object,
    size: int,
    check: Callable[[str, int, str, object], Tensor] = check_tensor,
) -> list[Tensor]:
    """The value, if it is a list of `size` tensors that each pass `check`.

    Raises:
        TypeError: it is no list, or holds something else than tensors.
        CollectiveError: its length is not the group's size.
    """
    if not isinstance(value, list):
        raise TypeError(f"rank {rank}: {op}: {name} must be a list of tensors, got {type(value).__name__}")
    if len(value) != size:
        raise CollectiveError(f"rank {rank}: {op}: {name} has {len(value)} tensors, expected the group's size {size}")
    return [check(op, rank, f"{name}[{index}]", item) for index, item in enumerate(value)]


def check_alike(op: str, rank: int, tensors: Sequence[Tensor]) -> None:
    """Nothing, if all tensors have one dtype and live on one kind of device.

    Raises:
        ValueError: more than one dtype.
        CollectiveError: more than one kind of device.
    """
    dtype, device = tensors[0].dtype, tensors[0].device
    if all(tensor.dtype is dtype and tensor.device == device for tensor in tensors):
        return  # nearly always, and a rank waits for this
    if len({tensor.dtype for tensor in tensors}) > 1:
        dtypes = dict.fromkeys(dtype_name(tensor) for tensor in tensors)
        raise ValueError(f"rank {rank}: {op}: all tensors must have one dtype, got {' and '.join(dtypes)}")
    if len({tensor.device.type for tensor in tensors}) > 1:
        devices = dict.fromkeys(tensor.device.type for tensor in tensors)
        raise CollectiveError(f"rank {rank}: {op}: all tensors must be on one device, got {' and '.join(devices)}")


def check_splits(op: str, rank: int, name: str, tensor: Tensor, splits: Sequence[float] | None, size: int) -> list[int]:
    """Rows of `tensor` for each member; without `splits` (None, or none in it), an equal share.

    Raises:
        TypeError: `splits` is no sequence of ints (a tensor is none, a bool is no int).
        CollectiveError: wrong number of splits, a negative one, or a sum that is not the first dimension.
    """
    rows = tensor.shape[0] if tensor.dim() else tensor.numel()
    rows_of = [] if splits is None else _whole_numbers(op, rank, f"{name} split sizes", splits)
    if not rows_of:
        if rows % size:
            raise CollectiveError(
                f"rank {rank}: {op}: the first dimension {rows} of {name} is not divisible by the group's size {size};"
                " give split sizes"
            )
        return [rows // size] * size
    if len(rows_of) != size:
        raise CollectiveError(
            f"rank {rank}: {op}: {name} has {len(rows_of)} split sizes, expected the group's size {size}"
        )
    if min(rows_of) < 0:
        raise CollectiveError(f"rank {rank}: {op}: {name} split sizes {rows_of} must not be negative")
    if sum(rows_of) != rows:
        raise CollectiveError(
            f"rank {rank}: {op}: {name} split sizes {rows_of} add up to {sum(rows_of)},"
            f" expected the first dimension {rows}"
        )
    return rows_of


def check_expected_splits(
    op: str, rank: int, name: str, tensor: Tensor, splits: Sequence[float] | None, group: Group
) -> list[float]:
    """Rows of `tensor` for each rank that a member stands for; without `splits` an equal share.

    They are expected numbers, so that only their sum is rounded.

    Raises:
        CollectiveError: wrong number of splits, a negative one, or a sum that is not the first dimension.
    """
    rows, members = tensor.shape[0], len(group.ranks)
    if not splits:
        return [rows / group.size] * members
    total = group.total(splits) if len(splits) == members else -1
    if min(splits) < 0 or round(total) != rows:
        raise CollectiveError(
            f"rank {rank}: {op}: {name} has {len(splits)} split sizes, together {total:g}, expected one for each of"
            f" {members} members, together the first dimension {rows}"
        )
    return list(splits)


def _whole_numbers(op: str, rank: int, name: str, values: object) -> list[int]:
    if not isinstance(values, (list, tuple)) and (not isinstance(values, Sequence) or isinstance(values, str)):
        raise TypeError(f"rank {rank}: {op}: {name} must be a list of ints, got {type(values).__name__}")
    for index, value in enumerate(values):
        if not _is_whole(value):
            raise TypeError(
                f"rank {rank}: {op}: {name} must be a list of ints, got {type(value).__name__} at index {index}"
            )
    return [int(value) for value in values]


def _is_whole(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def check_reduce(op: str, rank: int, reduce: object, tensor: Tensor) -> str:
    """The reduction's name, if it is one and is defined for this dtype; CollectiveError otherwise."""
    name = REDUCE_OPS.get(reduce) if isinstance(reduce, ReduceOp.RedOpType) else None
    if name is None:
        raise CollectiveError(f"rank {rank}: {op}: op {reduce} is not one of {', '.join(REDUCE_OPS.values())}")
    if (name in ("min", "max") and tensor.is_complex()) or tensor.dtype not in _REDUCED:
        raise CollectiveError(f"rank {rank}: {op}: op {name} is not defined for {dtype_name(tensor)}")
    return name


def check_rank(op: str, rank: int, name: str, value: object) -> int:
    """The number of a rank; TypeError if it is no int (a tensor is none, nor is a bool)."""
    if not _is_whole(value):
        raise TypeError(f"rank {rank}: {op}: {name} must be an int, got {type(value).__name__}")
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_label(op: str, rank: int, label: object) -> None:
    """Nothing, if a label is a str; TypeError otherwise."""
    if not isinstance(label, str):
        raise TypeError(f"rank {rank}: {op}: label must be a str, got {type(label).__name__}")


def check_group(rank: int, ranks: object, world_size: int) -> tuple[int, ...]:
    """The ranks of a new group, in order.

    Raises:
        TypeError: they are no sequence of ints.
        CollectiveError: one is missing from the world or named twice, or there is none.
    """
    members = tuple(_whole_numbers("new_group", rank, "ranks", ranks))
    if not members or len(set(members)) != len(members) or min(members) < 0 or max(members) >= world_size:
        raise CollectiveError(
            f"rank {rank}: new_group: ranks {list(members)} must be distinct ranks of a world of {world_size}"
        )
    return members


def check_stream(rank: int, name: object, taken: Sequence[str]) -> str:
    """The name, if a stream of that name is still to be had; TypeError if it is no str, else ProgramError."""
    if not isinstance(name, str):
        raise TypeError(f"rank {rank}: stream: name must be a str, got {type(name).__name__}")
    if not name or name in taken:
        raise ProgramError(f"rank {rank}: stream: '{name}' must be a new name; there are {', '.join(taken)}")
    return name

"""A recorded call's tensors without their values, or with them, and the call of a `Rank` verb that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor's shape, dtype and, unless None, values as bytes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    values: bytes | None = None

    @staticmethod
    def of(tensor: Tensor) -> Packed:
        """Return a tensor's shape and values."""
        flat = tensor.detach().contiguous().reshape(-1)
        values = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return Packed(tuple(tensor.shape), tensor.dtype, values)

    @staticmethod
    def shape_of(tensor: Tensor) -> Packed:
        """Return a tensor's shape without values."""
        return Packed(tuple(tensor.shape), tensor.dtype)

    def tensor(self, device: torch.device) -> Tensor:
        """Return a CPU tensor with these values, or, without values, an uninitialized tensor on `device`."""
        if not self.values:  # None or b"", the values of an empty tensor
            return torch.empty(self.shape, dtype=self.dtype, device=device if self.values is None else "cpu")
        # A copy in a bytearray: torch warns about memory that is not writable, such as that of bytes.
        return torch.frombuffer(bytearray(self.values), dtype=self.dtype).view(self.shape)


Tensors = list[Tensor]


# How verbs take their tensors, given inputs and targets; other verbs take all as single arguments, targets first.
_ARGUMENTS: dict[str, Callable[[Tensors, Tensors], Sequence[Any]]] = {
    "all_reduce_coalesced": lambda inputs, targets: [inputs],
    "all_gather": lambda inputs, targets: [targets, *inputs],
    "reduce_scatter": lambda inputs, targets: [*targets, inputs],
    "gather": lambda inputs, targets: [*inputs, targets or None],
    "scatter": lambda inputs, targets: [*targets, inputs or None],
    "all_gather_coalesced": lambda inputs, targets: [_rows(targets, len(inputs)), inputs],
    **dict.fromkeys(
        ("all_to_all", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"),
        lambda inputs, targets: [targets, inputs],
    ),
}


def _one_by_one(inputs: Tensors, targets: Tensors) -> Sequence[Any]:
    return [*targets, *inputs]


def _rows(tensors: Tensors, width: int) -> list[Tensors]:
    return [tensors[start : start + width] for start in range(0, len(tensors), width)]


def issue(
    rank: Rank,
    verb: str,
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    *,
    group: Group,
    label: str,
    options: Mapping[str, Any],
) -> Work[Any]:
    """Call a verb of `Rank` with the tensors and options of an `IssueCall`."""
    given = dict(options)
    if "op" in given:
        given["op"] = getattr(ReduceOp, given["op"])
    arguments = _ARGUMENTS.get(verb, _one_by_one)
    tensors = arguments(list(inputs), list(targets))
    work: Work[Any] = getattr(rank, verb)(*tensors, group=group, label=label, **given)
    return work


def nothing() -> None:
    """Do nothing: a simulated kernel computes no values here."""

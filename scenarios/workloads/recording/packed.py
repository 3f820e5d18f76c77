"""A recorded call's tensors without their values, or with them, and the call of a `Rank` verb that has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
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


@cache
def _arguments(verb: str) -> dict[str, str]:
    """Return the arguments of a verb of `Rank` that are tensors or the rank at the other end, with their types."""
    kinds = ((one.name, str(one.annotation)) for one in signature(getattr(Rank, verb)).parameters.values())
    return {name: kind for name, kind in kinds if "Tensor" in kind or name in ("src", "dst")}


def root_of(verb: str) -> str:
    """Return the argument of a verb that has the rank at the other end, "src" or "dst"."""
    return next(name for name in ("src", "dst") if name in _arguments(verb))


def _tensors(verb: str, inputs: Tensors, targets: Tensors) -> Iterator[Any]:
    """Yield a verb's tensor arguments; verbs that write over what they read have one."""
    kinds = [kind for kind in _arguments(verb).values() if "Tensor" in kind]
    both = [inputs, targets] if verb == "gather" else [targets, inputs]
    for kind, tensors in zip(kinds, both if len(kinds) > 1 else [targets or inputs], strict=False):
        match kind:
            case "Tensor":
                (one,) = tensors
                yield one
            case "list[list[Tensor]]":
                yield [tensors[start : start + len(inputs)] for start in range(0, len(tensors), len(inputs))]
            case _:
                yield tensors or (None if "None" in kind else [])


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
    tensors = _tensors(verb, list(inputs), list(targets))
    work: Work[Any] = getattr(rank, verb)(*tensors, group=group, label=label, **given)
    return work


def nothing() -> None:
    """Do nothing: a simulated kernel computes no values here."""

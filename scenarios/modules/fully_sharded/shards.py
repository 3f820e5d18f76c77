"""Parameters cut into shards by their first dimension, as in torch's fully_shard: layouts and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from scenarios.modules.recorder import Operator
from scenarios.seam.errors import ProgramError

Shape = tuple[int, ...]
# Kinds of kernels of an optimizer that works element by element.
_ELEMENTWISE = frozenset({"elementwise", "optimizer", "permute"})


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """A layout of a unit's parameters, concatenated in each of `size` equal shards, padded at the end.

    A shard has ceil(rows / size) rows of each parameter.
    """

    shapes: tuple[Shape, ...]
    dtype: torch.dtype
    size: int

    @property
    def numels(self) -> list[int]:
        """Elements of each parameter's shard."""
        return [shard_rows(shape, self.size) * prod(shape[1:]) for shape in self.shapes]

    @property
    def shard_numel(self) -> int:
        """Elements of a shard."""
        return sum(self.numels)

    @property
    def numel(self) -> int:
        """Elements of all shards."""
        return self.size * self.shard_numel

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards."""
        return self.numel * self.dtype.itemsize


def shard_rows(shape: Sequence[int], size: int) -> int:
    """Return the number of rows of a parameter's shard."""
    return -(-shape[0] // size)


def shard_like(parameter: Tensor, size: int) -> Tensor:
    """Return a tensor of the shape of a parameter's first shard, which is never smaller than others."""
    shape = (shard_rows(parameter.shape, size), *parameter.shape[1:])
    return torch.nn.Parameter(torch.empty(shape, dtype=parameter.dtype))


def check_elementwise(name: str, optimizer: object, operators: Sequence[Operator]) -> None:
    """Raise a ProgramError unless an optimizer's step has equal results on shards and on whole parameters."""
    found = next((each for each in operators if each.kernel.kind not in _ELEMENTWISE), None)
    if found is not None:
        raise ProgramError(
            f"module {name}: optimizer {type(optimizer).__name__} computes {found.name} over whole parameters: expected"
            " one that works element by element, for each rank has a shard"
        )


class ShardedParameter:
    """A parameter of which a rank keeps a shard, `own`; the whole one has memory only while gathered.

    `own` has the rows without padding: fewer than other ranks' in the last shards, possibly none.
    """

    def __init__(self, parameter: Tensor, size: int, place: int) -> None:
        rows, shape, numel = shard_rows(parameter.shape, size), parameter.shape, parameter.numel()
        each = rows * prod(shape[1:])
        # Zeros, as the last shards' padding is gathered and reduced, too.
        self._buffer = torch.zeros(size * each, dtype=parameter.dtype, device=parameter.device)
        self._buffer[:numel].copy_(parameter.detach().reshape(-1))
        self._bytes, self.parameter = self._buffer.untyped_storage().nbytes(), parameter
        self.padded = self._buffer[place * each : (place + 1) * each].clone()
        own_rows = max(0, min(rows, shape[0] - place * rows))
        self._own_shape = (own_rows, *shape[1:])
        self.own = self.view(self.padded).requires_grad_()
        # The module's own parameter becomes a view, whose memory comes and goes with the buffer's storage.
        parameter.data = self._buffer[:numel].view(shape)
        self.free()

    def view(self, padded: Tensor) -> Tensor:
        """Return a shard's elements without padding."""
        return padded[: prod(self._own_shape)].view(self._own_shape)

    def free(self) -> None:
        """Free all memory but the shard's."""
        # The storage is resized rather than replaced, as autograd keeps tensors that refer to it.
        self._buffer.untyped_storage().resize_(0)

    def allocate(self) -> Tensor:
        """Allocate the whole parameter, padding included, and return it flat."""
        self._buffer.untyped_storage().resize_(self._bytes)
        return self._buffer

    def take_gradient(self) -> Tensor:
        """Return the gradient of the whole parameter, and remove it."""
        gradient = self.parameter.grad
        assert gradient is not None, "it is ready"
        self.parameter.grad = None
        return gradient


def copy_in(parameters: Sequence[ShardedParameter], flat: Tensor) -> None:
    """Concatenate a rank's shards."""
    torch.cat([each.padded for each in parameters], out=flat)


def copy_out(parameters: Sequence[ShardedParameter], flat: Tensor, size: int) -> None:
    """Fill parameters from all ranks' shards, [size * elements of a shard]."""
    whole = [each.allocate().view(size, -1) for each in parameters]
    with torch.no_grad():
        torch.split_with_sizes_copy(flat.view(size, -1), [each.shape[1] for each in whole], dim=1, out=whole)


def cut(gradients: list[Tensor], flat: Tensor, size: int) -> None:
    """Copy gradients into consecutive shards for all ranks, padded with zeros after the last rows."""
    # torch's own operator of FSDP2: it pads and copies all gradients in one kernel.
    torch._chunk_cat(gradients, 0, size, out=flat.view(size, -1))

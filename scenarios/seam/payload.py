"""Tensors of a collective, copied as bytes by the simulator's and the tests' backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scenarios.seam.calls import Call

# Takes a reducing call and the members' inputs in group order; the result has an input's shape.
Reduce = Callable[[Call, Sequence[Tensor]], Tensor]


class Payload(NamedTuple):
    """One member's tensors. Inputs are copies, made when the call was issued; outputs are the program's tensors."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


NO_PAYLOAD = Payload((), ())


class Payloads(dict[int, Payload]):
    """The payloads of one collective, by group rank."""

    def __init__(self, reduce: Reduce) -> None:
        super().__init__()
        self._reduce = reduce
        self._totals: dict[int, Tensor] = {}

    def total(self, call: Call, part: int = 0) -> Tensor:
        """Return the reduction of all members' inputs number `part`; cached, as all members get the same."""
        if part not in self._totals:
            inputs = [self[member].inputs[part] for member in range(call.group.size)]
            self._totals[part] = self._reduce(call, inputs)
        return self._totals[part]

    def clear(self) -> None:
        """Release all tensors of the payload."""
        super().clear()
        self._totals.clear()


def take(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Payload:
    """Copy the inputs and poison the outputs, so that a program that reads outputs too early notices."""
    for tensor in (*inputs, *outputs):
        if not tensor.is_meta:
            break
    else:
        return NO_PAYLOAD
    kept = tuple(resolve_views(tensor).clone() for tensor in inputs)
    for tensor in outputs:
        poison(tensor)
    return Payload(kept, tuple(outputs))


def take_rows(call: Call, input: Tensor, output: Tensor) -> Payload:
    """Take one input and one output tensor, split into a chunk for each member; chunks are views."""
    payload = take((input,), (output,))
    if not payload.outputs:
        return payload
    size = call.element_size
    sends, recvs = [count // size for count in call.send_bytes], [count // size for count in call.recv_bytes]
    (kept,), (output,) = payload
    return Payload(kept.view(-1).split_with_sizes(sends), output.view(-1).split_with_sizes(recvs))


def poison(tensor: Tensor) -> None:
    """Set all bits: NaN, -1, or the largest value of a type that has neither."""
    if tensor.dtype != torch.bool:
        as_bytes(tensor).fill_(255)


def resolve_views(tensor: Tensor) -> Tensor:
    """Return the detached tensor; copied if it is a conjugate or negative view, whose memory has other values."""
    if tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg()
    return without_grad(tensor)


def without_grad(tensor: Tensor) -> Tensor:
    """Return the tensor, detached if it requires a gradient."""
    return tensor.detach() if tensor.requires_grad else tensor


def as_bytes(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor's memory as a flat uint8 view, for any dtype."""
    # A contiguous tensor of one element or none may have any strides: as numpy's empty arrays, 0.
    return resolve_views(tensor).as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def copy_bytes(output: Tensor, input: Tensor) -> None:
    """Fill a contiguous tensor with the memory of another one of as many bytes, for any dtypes and shapes."""
    if output.dtype == input.dtype and output.shape == input.shape:  # a tenth of the time of two views
        without_grad(output).copy_(input)
    else:
        as_bytes(output).copy_(as_bytes(input))

"""The true bytes of a collective: what each member's outputs hold at the end; when that is, is left to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.seam.calls import Call
from scenarios.seam.tensor_bytes import as_bytes, resolved
from sim.rank.reduction import Reduce


@dataclass(frozen=True, slots=True)
class Payload:
    """One member's tensors. Inputs are its own copy, taken when the call was issued; outputs are the program's."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


NO_PAYLOAD = Payload((), ())


class Payloads(dict[int, Payload]):
    """Those of one collective, by group rank."""

    def __init__(self, reduce: Reduce) -> None:
        super().__init__()
        self._reduce = reduce
        self._total: Tensor | None = None

    def total(self, call: Call) -> Tensor:
        """What the inputs of all members reduce to: computed once, as all get the same."""
        if self._total is None:
            inputs = [self[member].inputs[0] for member in range(call.group.size)]
            self._total = self._reduce(call.reduce, inputs, call.group)
        return self._total

    def clear(self) -> None:
        """Let go of all tensors."""
        super().clear()
        self._total = None


def take(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Payload:
    """A copy of the inputs, and outputs poisoned: a program that reads them too early shall see it."""
    if all(tensor.is_meta for tensor in (*inputs, *outputs)):
        return NO_PAYLOAD
    kept = tuple(resolved(tensor).clone() for tensor in inputs)
    for tensor in outputs:
        poison(tensor)
    return Payload(kept, tuple(outputs))


def poison(tensor: Tensor) -> None:
    """All bits set: NaN, -1, or the largest value of a type that has neither."""
    if tensor.dtype != torch.bool:
        as_bytes(tensor).fill_(255)


def deliver(member: int, calls: Mapping[int, Call], payloads: Payloads) -> None:
    """Fill the outputs of `member` (a group rank) from the inputs of the members that it hears from."""
    mine = payloads[member]
    if not any(output.numel() for output in mine.outputs):
        return  # nothing to wait for: the others may not even have entered
    with torch.no_grad():
        _DELIVER[calls[member].op](member, calls, payloads, mine.outputs)


def _exchange(member: int, calls: Mapping[int, Call], payloads: Payloads, outputs: tuple[Tensor, ...]) -> None:
    for source, output in enumerate(outputs):
        as_bytes(output).copy_(as_bytes(payloads[source].inputs[member]))


def _all_reduce(member: int, calls: Mapping[int, Call], payloads: Payloads, outputs: tuple[Tensor, ...]) -> None:
    outputs[0].copy_(payloads.total(calls[member]))


def _reduce_scatter(member: int, calls: Mapping[int, Call], payloads: Payloads, outputs: tuple[Tensor, ...]) -> None:
    outputs[0].view(-1).copy_(payloads.total(calls[member]).view(len(payloads), -1)[member])


def _all_gather(member: int, calls: Mapping[int, Call], payloads: Payloads, outputs: tuple[Tensor, ...]) -> None:
    for source, row in enumerate(as_bytes(outputs[0]).view(len(payloads), -1)):
        row.copy_(as_bytes(payloads[source].inputs[0]))


def _from_root(member: int, calls: Mapping[int, Call], payloads: Payloads, outputs: tuple[Tensor, ...]) -> None:
    as_bytes(outputs[0]).copy_(as_bytes(payloads[calls[member].root].inputs[0]))


_DELIVER = {
    "all_to_all": _exchange,
    "all_to_all_single": _exchange,
    "all_reduce": _all_reduce,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_gather_into_tensor": _all_gather,
    "broadcast": _from_root,
    "recv": _from_root,
}

"""The true bytes of a collective: what each member's outputs hold at the end; when that is, is left to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.calls import Call
from scenarios.memory import as_bytes, resolved


@dataclass(frozen=True, slots=True)
class Payload:
    """One member's tensors. Inputs are its own copy, taken when the call was issued; outputs are the program's."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


NO_PAYLOAD = Payload((), ())


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


def deliver(member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload]) -> None:
    """Fill the outputs of `member` (a group rank) from the inputs of the members that it hears from."""
    mine = payloads[member]
    if not any(output.numel() for output in mine.outputs):
        return  # nothing to wait for: the others may not even have entered
    with torch.no_grad():
        _DELIVER[calls[member].op](member, calls, payloads, mine.outputs)


def _exchange(
    member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload], outputs: tuple[Tensor, ...]
) -> None:
    for source, output in enumerate(outputs):
        as_bytes(output).copy_(as_bytes(payloads[source].inputs[member]))


def _all_reduce(
    member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload], outputs: tuple[Tensor, ...]
) -> None:
    outputs[0].copy_(_reduced(calls, [payloads[source].inputs[0] for source in range(len(payloads))]))


def _reduce_scatter(
    member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload], outputs: tuple[Tensor, ...]
) -> None:
    size = len(payloads)
    parts = [payloads[source].inputs[0].view(size, -1)[member] for source in range(size)]
    outputs[0].view(-1).copy_(_reduced(calls, parts))


def _all_gather(
    member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload], outputs: tuple[Tensor, ...]
) -> None:
    for source, row in enumerate(as_bytes(outputs[0]).view(len(payloads), -1)):
        row.copy_(as_bytes(payloads[source].inputs[0]))


def _from_root(
    member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload], outputs: tuple[Tensor, ...]
) -> None:
    as_bytes(outputs[0]).copy_(as_bytes(payloads[calls[member].root].inputs[0]))


def _reduced(calls: Mapping[int, Call], parts: Sequence[Tensor]) -> Tensor:
    """In group order: a real ring adds in another order, so floating point results differ by rounding."""
    name = next(iter(calls.values())).reduce
    arithmetic = _WIDER.get(parts[0].dtype, parts[0].dtype)
    total = parts[0].to(arithmetic, copy=True)
    for part in parts[1:]:
        total = _COMBINE[name](total, part.to(arithmetic))
    return _divided(total, len(parts)) if name == "avg" else total


def _divided(total: Tensor, count: int) -> Tensor:
    """Integers towards zero, complex numbers part by part."""
    if total.is_complex():
        return torch.view_as_complex(torch.view_as_real(total) / count)
    return torch.div(total, count, rounding_mode=None if total.is_floating_point() else "trunc")


# Types that torch does not add on a CPU.
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.complex32: torch.complex64}
_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}
_DELIVER = {
    "all_to_all": _exchange,
    "all_to_all_single": _exchange,
    "all_reduce": _all_reduce,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_gather_into_tensor": _all_gather,
    "broadcast": _from_root,
    "recv": _from_root,
}

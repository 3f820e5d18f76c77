"""The true bytes of a collective: what each member's outputs hold at the end; when that is, is left to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.calls import Call


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
    kept = tuple(tensor.detach().clone() for tensor in inputs)
    for tensor in outputs:
        poison(tensor)
    return Payload(kept, tuple(outputs))


def poison(tensor: Tensor) -> None:
    """NaN, -1, or the largest value of a type that has neither."""
    if tensor.dtype == torch.bool:
        return
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        else:
            tensor.fill_(-1 if tensor.dtype.is_signed else torch.iinfo(tensor.dtype).max)


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
        output.view(-1).copy_(payloads[source].inputs[member].view(-1))


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
    for source, row in enumerate(outputs[0].view(len(payloads), -1)):
        row.copy_(payloads[source].inputs[0].view(-1))


def _from_root(
    member: int, calls: Mapping[int, Call], payloads: Mapping[int, Payload], outputs: tuple[Tensor, ...]
) -> None:
    outputs[0].copy_(payloads[calls[member].root].inputs[0])


def _reduced(calls: Mapping[int, Call], parts: Sequence[Tensor]) -> Tensor:
    """In group order: a real ring adds in another order, so floating point results differ by rounding."""
    name = next(iter(calls.values())).reduce
    total = parts[0].clone()
    for part in parts[1:]:
        total = _COMBINE[name](total, part)
    return total / len(parts) if name == "avg" else total


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

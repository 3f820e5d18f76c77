"""What the inputs of a reduction add up to, in the order of gloo's ring or of the group; when, is left to others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scenarios.seam.rank import Group
from scenarios.seam.tensor_bytes import resolved
from sim.gloo.segments import all_reduce_segments

# The name of a reduction, the members' inputs in group order, and their group; the result has an input's shape.
Reduce = Callable[[str, Sequence[Tensor], Group], Tensor]


def in_rings(name: str, inputs: Sequence[Tensor], group: Group) -> Tensor:
    """To the bit what gloo gives (torch 2.13): each chunk goes round the ring of the members, in order of their ranks.

    So sums are rounded as there, and max and min keep a NaN only of the member that a chunk ends at.
    """
    if not inputs[0].is_floating_point() and not (inputs[0].is_complex() and name != "product"):
        return in_group_order(name, inputs, group)  # whole numbers are exact in any order
    order = sorted(range(group.size), key=group.ranks.__getitem__)
    parts = [_as_real(inputs[member]).reshape(-1) for member in order]
    total = _round_the_ring(_RING[name], parts)
    if name == "avg":
        total /= group.size
    return total.view(inputs[0].dtype if inputs[0].is_complex() else total.dtype).view(inputs[0].shape)


def in_group_order(name: str, inputs: Sequence[Tensor], group: Group) -> Tensor:
    """One after the other."""
    arithmetic = _WIDER.get(inputs[0].dtype, inputs[0].dtype)
    total = functools.reduce(_COMBINE[name], (given.to(arithmetic) for given in inputs))
    return _divided(total, group.size) if name == "avg" else total


def _round_the_ring(combine: Callable[[Tensor, Tensor], Tensor], parts: Sequence[Tensor]) -> Tensor:
    """Chunk c starts as that of member c - 1, goes to the left, and ends at member c, who hands it on."""
    ranks, numel, width = len(parts), parts[0].numel(), parts[0].element_size()
    segments = all_reduce_segments(numel * width, width, ranks)
    chunk = segments.per_chunk * segments.segment_bytes // width
    padded = torch.stack([torch.nn.functional.pad(part, (0, ranks * chunk - numel)) for part in parts])
    chunks = torch.arange(ranks)
    padded = padded.view(ranks, ranks, chunk)
    total = padded[(chunks - 1) % ranks, chunks]
    for step in range(2, ranks + 1):
        total = combine(padded[(chunks - step) % ranks, chunks], total)
    return total.view(-1)[:numel]


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(resolved(tensor)) if tensor.is_complex() else tensor


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
# A member's own and what it received; gloo compares as C++ does: with a NaN nothing is less, and its own stays.
_RING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": lambda own, received: torch.where(received < own, received, own),
    "max": lambda own, received: torch.where(own < received, received, own),
}

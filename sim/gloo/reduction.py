"""A reduction in the order of gloo's ring, which determines the rounding of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scenarios.seam.calls import Call
from scenarios.seam.payload import resolve_views
from sim.gloo.segments import Segments, all_reduce_segments, reduce_segments
from sim.rank.reduction import in_group_order


def in_rings(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    """Reduce to the bit as gloo does (torch 2.13): each chunk goes along the ring of the members, by rank.

    So sums are rounded as in gloo, and max and min keep a NaN only of the member at which a chunk ends.
    """
    name, group = call.reduce, call.group
    if not inputs[0].is_floating_point() and not (inputs[0].is_complex() and name != "product"):
        return in_group_order(call, inputs)  # whole numbers are exact in any order
    # gloo connects its ring by global rank, whatever the group's order.
    order = sorted(range(group.size), key=group.ranks.__getitem__)
    parts = [_as_real(inputs[member]).reshape(-1) for member in order]
    total = _round_the_ring(_RING[name], parts, reduce_segments if call.op == "reduce" else all_reduce_segments)
    if name == "avg":
        total /= group.size
    return total.view(inputs[0].dtype if inputs[0].is_complex() else total.dtype).view(inputs[0].shape)


def _round_the_ring(
    combine: Callable[[Tensor, Tensor], Tensor], parts: Sequence[Tensor], cut: Callable[[int, int, int], Segments]
) -> Tensor:
    """Return the reduced buffer: chunk c starts at member c - 1, moves to the left, and ends at member c, which sends
    it on.
    """
    ranks, numel, width = len(parts), parts[0].numel(), parts[0].element_size()
    segments = cut(numel * width, width, ranks)
    chunk = segments.per_chunk * segments.segment_bytes // width
    padded = torch.stack([torch.nn.functional.pad(part, (0, ranks * chunk - numel)) for part in parts])
    chunks = torch.arange(ranks)
    padded = padded.view(ranks, ranks, chunk)
    # All chunks at once: each step adds the next member on every chunk's way round the ring.
    total = padded[(chunks - 1) % ranks, chunks]
    for step in range(2, ranks + 1):
        total = combine(padded[(chunks - step) % ranks, chunks], total)
    return total.view(-1)[:numel]


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(resolve_views(tensor)) if tensor.is_complex() else tensor


# Arguments: a member's own value and the received one. gloo compares as C++ does: no value is less than NaN, nor NaN
# less than any value, so the own value stays.
_RING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": lambda own, received: torch.where(received < own, received, own),
    "max": lambda own, received: torch.where(own < received, received, own),
}

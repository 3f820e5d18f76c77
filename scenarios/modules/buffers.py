"""Broadcasts a module's buffers from rank 0, as DDP does before a pass whose gradients it reduces."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from scenarios.compression.local import compute, copy_cost
from scenarios.modules.ddp_buckets import flatten, unflatten
from scenarios.modules.trace import Trace, buffers_of
from scenarios.seam.rank import Rank
from scenarios.seam.roles import PARAMETERS


async def broadcast_buffers(rank: Rank, name: str, traced: Trace, module: Any) -> None:
    """Broadcast rank 0's buffers, those of one dtype in one call; `module` is None where payload has no values."""
    own, label = buffers_of(module), f"{name}.buffers"
    for dtype in dict.fromkeys(spec.dtype for spec in traced.buffers):
        chosen = [index for index, spec in enumerate(traced.buffers) if spec.dtype == dtype]
        specs, buffers = [traced.buffers[index] for index in chosen], [own[index] for index in chosen if own]
        flat = torch.empty(sum(prod(spec.shape) for spec in specs), dtype=dtype, device=rank.device)
        await compute(rank, copy_cost(flat, flat.numel()), flatten, buffers, flat, label=label, role=PARAMETERS)
        await rank.broadcast(flat, src=0, label=label, role=PARAMETERS)
        cost = copy_cost(flat, flat.numel(), launches=len(chosen))
        await compute(rank, cost, _spread, flat, buffers, label=label, role=PARAMETERS)


def _spread(flat: Tensor, buffers: Sequence[Tensor]) -> None:
    for each, piece in zip(buffers, unflatten(flat, [each.shape for each in buffers]), strict=True):
        each.copy_(piece)

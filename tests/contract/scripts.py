"""Programs out of functions, and tensors out of recordings: what contract tests speak with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording


@dataclass(frozen=True)
class Script(Program):
    """A program of one function, which lives in a module, so that it can travel to a process; `given` is handed on.

    After a play, `returned` holds what the function returned on each rank, in every world.
    """

    body: Callable[..., Awaitable[Any]]
    given: tuple[object, ...] = ()
    returned: dict[int, Any] = field(default_factory=dict)

    async def __call__(self, rank: Rank) -> None:
        self.returned[rank.rank] = await self.body(rank, *self.given)


def note(rank: Rank, name: str, tensor: Tensor) -> None:
    """Record a tensor: its elements, a complex one as pairs."""
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    rank.record(f"{name}.size", float(flat.numel()))
    for index, value in enumerate(flat.reshape(-1).tolist()):
        rank.record(f"{name}[{index}]", float(value))


def noted_elements(recording: Recording, rank: int, name: str) -> list[float]:
    """The elements that a rank has noted."""
    values = {metric.name: metric.value for metric in recording.metrics if metric.rank == rank}
    return [values[f"{name}[{index}]"] for index in range(int(values[f"{name}.size"]))]

"""What compression asks of a rank: the few verbs that a reduction needs, so that less than a `Rank` can play it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.rank import Group, Kernel, Work

T = TypeVar("T")


class ReducingRank(Protocol):
    """The part of `scenarios.seam.rank.Rank` that reduces gradients; every Rank is one."""

    @property
    def world_size(self) -> int: ...
    @property
    def device(self) -> torch.device: ...

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]: ...

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]: ...

"""HookRank: the verbs of a reduction in a user's own training, on a process group of its own, unrecorded."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

from real.rank.libraries import transport
from scenarios.seam.rank import Group, Kernel

T = TypeVar("T")


class Done(Generic[T]):
    """A finished `Work` (on a GPU: what follows on the current stream sees its result)."""

    __slots__ = ("_result",)

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, Any, T]:
        return self._result
        yield  # pragma: no cover - makes this a generator


class HookRank:
    """A `compression.ReducingRank` that runs every verb at once, on the thread and the stream of its caller."""

    def __init__(self, handle: dist.ProcessGroup, device: torch.device) -> None:
        self._handle, self._device = handle, device

    @property
    def world_size(self) -> int:
        """How many ranks gradients are averaged over."""
        return self._handle.size()

    @property
    def device(self) -> torch.device:
        """The device of the gradients."""
        return self._device

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Done[T]:
        """See `Rank.compute`; its cost is not recorded."""
        return Done(function(*arguments))

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Done[Tensor]:
        """See `Rank.all_reduce`; there is one group only.

        Raises:
            RankLostError: the library failed, most likely because another rank has ended.
        """
        assert group is None
        with transport(self._handle.rank(), label or "all_reduce"):
            dist.all_reduce(tensor, op, group=self._handle)
        return Done(tensor)


def twin_of(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """Make a further group of the same ranks, backend and time-out; all of them call this in the same order.

    A reduction beside the backward pass needs it: on the user's own group its collectives would cross others'.
    """
    is_world = group.size() == dist.get_world_size()
    twin = dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._get_backend(device).options._timeout,
        backend=dist.get_backend_config(group),
        # Ranks outside a smaller group do not come; without them, names rest on how many groups a rank is in.
        use_local_synchronization=not is_world,
    )
    assert isinstance(twin, dist.ProcessGroup), "a rank reduces over a group that it is in"
    return twin

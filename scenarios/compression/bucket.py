"""A bucket of gradients, and its mean without compression: divide, then all-reduce."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from scenarios.compression.local import compute, cost
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import REDUCTION


class Bucket(Protocol):
    """A bucket of gradients in one flat buffer, with methods of torch's `GradBucket`, so that DDP's buckets fit.

    The buffer is contiguous, 1-D, in the gradients' order, each row-major. A reduction writes its result into it.
    """

    def index(self) -> int:
        """Return the bucket's number in the step, from 0; compression keeps its memory by this number."""
        ...

    def buffer(self) -> Tensor: ...

    def gradients(self) -> list[Tensor]:
        """Return views of the buffer in the parameters' shapes."""
        ...

    def is_last(self) -> bool:
        """Return whether this is the last bucket of its step."""
        ...


async def vanilla(rank: Rank, bucket: Bucket, group: Group | None = None, *, label: str = "powersgd.vanilla") -> Tensor:
    """Average a bucket over the group (None: the stream's world) without compression; return its buffer."""
    buffer = await divide(rank, bucket, group, label=label)
    await rank.all_reduce(buffer, group=group, label=label, role=REDUCTION)
    return buffer


async def divide(rank: Rank, bucket: Bucket, group: Group | None = None, *, label: str) -> Tensor:
    """Divide each element of a bucket by the number of the group's members, in place; return its buffer."""
    buffer = bucket.buffer()
    numel, size = buffer.numel(), group_size(rank, group)
    kernel = cost("elementwise", buffer, flops=numel, read=numel, written=numel)
    await compute(rank, kernel, buffer.div_, size, label=f"{label}.divide", role=REDUCTION)
    return buffer


def group_size(rank: Rank, group: Group | None) -> int:
    """Return the number of a group's members; None is the world."""
    return rank.world_size if group is None else group.size

"""The mean of a bucket without compression: divide, then all-reduce."""

from __future__ import annotations

from torch import Tensor

from scenarios.compression.bucket import Bucket
from scenarios.compression.costs import cost
from scenarios.compression.local import compute
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


async def vanilla(rank: Rank, bucket: Bucket, group: Group | None = None, *, label: str = "powersgd.vanilla") -> Tensor:
    """The bucket's buffer with the mean over the group (None: the stream's world), in place."""
    buffer = bucket.buffer()
    numel, size = buffer.numel(), group_size(rank, group)
    kernel = cost("elementwise", buffer, flops=numel, read=numel, written=numel)
    await compute(rank, kernel, buffer.div_, size, label=f"{label}.divide")
    await rank.all_reduce(buffer, group=group, label=label)
    return buffer


def group_size(rank: Rank, group: Group | None) -> int:
    """Members of a group; None is the world."""
    return rank.world_size if group is None else group.size

"""The process groups of 2D parallelism: those that hold all tables together, and those of a shard's replicas.

As TorchRec's DMPCollection (v2026.08.17) makes them: of 8 ranks [0, 2, 4, 6] and [1, 3, 5, 7] are sharding groups of 4,
and [0, 1], [2, 3] ... replicas; with `inter_host_allreduce` [0, 1, 2, 3] and [4, 5, 6, 7], and [0, 4], [1, 5] ...
"""

from __future__ import annotations

from scenarios.config.scenario import Replication
from scenarios.seam.group import Group, Groups, own_group
from scenarios.seam.rank import Rank


def within_sharding_group(rank: Rank, replication: Replication | None) -> Rank:
    """The rank as its sharding group sees it, on its stream; the rank itself without replication.

    Every rank calls this on the same streams in the same order: it makes all groups.
    """
    if replication is None:
        return rank
    node, sharding = replication.node_group_size, replication.sharding_groups(rank.world_size)
    starts = range(0, replication.sharding_group_size, node)
    return rank.within(
        Groups(
            world=own_group(rank, sharding),
            intra=own_group(rank, [ranks[start : start + node] for ranks in sharding for start in starts]),
            cross=own_group(rank, [ranks[place::node] for ranks in sharding for place in range(node)]),
        )
    )


def replicas_of(rank: Rank, replication: Replication | None) -> Group | None:
    """The ranks that hold what this one holds of the tables; None without replication. Every rank calls this."""
    if replication is None:
        return None
    return own_group(rank, zip(*replication.sharding_groups(rank.world_size), strict=True))

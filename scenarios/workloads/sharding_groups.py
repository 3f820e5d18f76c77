"""The process groups of 2D parallelism: ranks that hold all tables together, and ranks with replicas of a shard.

The groups follow TorchRec's DMPCollection (v2026.08.17): for 8 ranks [0, 2, 4, 6] and [1, 3, 5, 7] are sharding groups
of 4, and [0, 1], [2, 3] ... replicas; with `inter_host_allreduce` [0, 1, 2, 3] and [4, 5, 6, 7], and [0, 4], [1, 5] ...
"""

from __future__ import annotations

from scenarios.config.scenario import Replication
from scenarios.seam.group import Group, Groups, own_group
from scenarios.seam.rank import Rank


def within_sharding_group(rank: Rank, replication: Replication | None) -> Rank:
    """Return the rank with its sharding group in place of the world; without replication the rank itself.

    Creates the groups of all ranks, so all ranks must call this at the same place in the order of their calls.
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
    """Return the group of ranks with the same shards; None without replication. Every rank makes this call."""
    if replication is None:
        return None
    return own_group(rank, zip(*replication.sharding_groups(rank.world_size), strict=True))

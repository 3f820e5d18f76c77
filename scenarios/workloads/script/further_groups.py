"""Groups that a script makes besides that of all ranks."""

from __future__ import annotations

from scenarios.config.host_classes import HostClasses
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank


def further_group(rank: Rank, members: tuple[int, ...], host_classes: HostClasses | None) -> Group:
    """Return a further group of these ranks; where hosts are simulated for others, one of those that there are.

    Raises:
        ProgramError: another rank has made one of other members, or hosts are simulated for others and there is none.
    """
    if host_classes is None:
        return _agreed(rank, rank.new_group(members), members)
    size, gpus, first = rank.world_size, rank.local_world_size, members[0]
    if members == tuple(range(size)):
        return rank.world
    if first % gpus == 0 and members == tuple(range(first, first + gpus)):
        return rank.intra
    if first < gpus and members == tuple(range(first, size, gpus)):
        return rank.cross
    raise ProgramError(
        f"rank {rank.rank}: new_group of {len(members)} ranks from {first} on: expected all ranks, those of a"
        " host or those of a place on all hosts, as run.ranks = 'alike'; run.ranks = 'each' takes any"
    )


def _agreed(rank: Rank, group: Group, members: tuple[int, ...]) -> Group:
    if group.ranks != members:
        raise ProgramError(
            f"rank {rank.rank}: new_group of {list(members)}: expected {list(group.ranks)}, as another rank"
            " makes, as all ranks make all groups in one order (use_local_synchronization is not simulated)"
        )
    return group

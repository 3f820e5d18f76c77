"""Process groups that a script creates in addition to the group of all ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from scenarios.config.host_classes import MOST_RANKS, HostClasses
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.traits import MESSAGES
from scenarios.workloads.recording.events.calls import IssueCall, NewGroup
from scenarios.workloads.recording.recorded import Recorded


def further_group(rank: Rank, members: tuple[int, ...], host_classes: HostClasses | None) -> Group:
    """Return a new group of `members`; with host classes, the rank's own group that has these members.

    Raises:
        ProgramError: another rank has created the group with other members.
    """
    if host_classes is not None:
        kind = _kind(members, rank.world_size, rank.local_world_size)
        assert kind is not None, "hosts have no classes where other groups are made"
        group: Group = getattr(rank, kind)
        return group
    group = rank.new_group(members)
    if group.ranks != members:
        raise ProgramError(
            f"rank {rank.rank}: new_group of {list(members)}: expected {list(group.ranks)}, as another rank"
            " makes, as all ranks make all groups in one order (use_local_synchronization is not simulated)"
        )
    return group


def recorded_host_classes(scenario: Scenario, recorded: Recorded) -> HostClasses | None:
    """Return the host classes of a recording; None if all hosts have to be simulated.

    All hosts are simulated if there are too many classes, messages between ranks, groups other than all ranks, a host's
    ranks and one rank per host, or calls over another library than the scenario's. A note is printed if only the
    library is the reason.
    """
    cluster = scenario.cluster
    lines = [recorded.lines[each] for sequence in recorded.sequences for each in set(sequence)]
    calls = [IssueCall.of_line(*values) for kind, *values in lines if kind == IssueCall.kind]
    if any(call.verb in MESSAGES for call in calls):
        return None
    groups = (tuple(line[1]) for line in lines if line[0] == NewGroup.kind)
    if any(_kind(each, cluster.world_size, cluster.host.gpus) is None for each in groups):
        return None
    loads = np.array(recorded.ranks, np.float64).reshape(cluster.hosts, cluster.host.gpus)
    if len(np.unique(loads, axis=0)) > max(1, MOST_RANKS // cluster.host.gpus):
        return None
    others = ((call.label, call.library) for call in calls if call.library not in ("", scenario.run.library))
    if (other := next(others, None)) is not None:
        if cluster.hosts > 1:
            _say_all_are_simulated(*other, scenario.run.library)
        return None
    return HostClasses.of(loads, cluster.host.gpus, cluster.faulty_hosts, cluster.hosts_per_domain)


@cache
def _say_all_are_simulated(label: str, library: str, usual: str) -> None:
    """Print, once, which call prevents host classes, and what would help."""
    print(
        f"note: {label} uses {library}, so all hosts are simulated; to simulate one host of each class, use"
        f' init_process_group("{usual}") and no group of {library}',
        file=sys.stderr,
    )


def _kind(members: Sequence[int], size: int, gpus: int) -> str | None:
    """Return the name in `Rank` of the group with these members: world, intra or cross; None if there is none."""
    first = members[0]
    kinds: Iterable[tuple[str, bool, range]] = (
        ("world", True, range(size)),
        ("intra", first % gpus == 0, range(first, first + gpus)),
        ("cross", first < gpus, range(first, size, gpus)),
    )
    return next((kind for kind, is_one, ranks in kinds if is_one and tuple(members) == tuple(ranks)), None)

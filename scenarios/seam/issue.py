"""A verb as a rank called it: on which group, and what becomes of a call whose arguments are refused.

The arguments themselves are checked by `calls` and `arguments`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral

from scenarios.seam.arguments import check_label
from scenarios.seam.calls import Call
from scenarios.seam.errors import CollectiveError
from scenarios.seam.rank import Group


@dataclass(frozen=True, slots=True)
class Asked:
    """A verb as it was called on a group, before its further arguments are looked at."""

    op: str
    rank: int
    group: Group
    label: str

    @property
    def is_member(self) -> bool:
        """Whether the rank that asks is in the group."""
        return self.rank in self.group

    def pair_with(self, peer: object) -> Group | None:
        """Where a send or recv meets its peer: a group of the two, source first. None if there is no such peer."""
        if isinstance(peer, bool) or not isinstance(peer, Integral) or peer not in self.group or peer == self.rank:
            return None
        source, target = (self.rank, int(peer)) if self.op == "send" else (int(peer), self.rank)
        return Group(f"{self.group.name}/{source}->{target}", (source, target))

    def not_a_member(self) -> str:
        """The warning to a rank that is not in the group."""
        group = self.group
        return (
            f"rank {self.rank}: {self.op}: not a member of group {group.name} of {list(group.ranks)}; nothing is done"
        )

    def refused(self, mistake: BaseException) -> Call:
        """The call whose arguments were refused, for the other members to hear of."""
        return Call(
            op=self.op,
            group=self.group,
            rank=self.rank,
            mistake=str(mistake) or type(mistake).__name__,
        )


def check_asked(op: str, rank: int, group: object, world: Group, label: str, knows: Callable[[Group], bool]) -> Asked:
    """The verb as it was called, on `world` if no group is given; `knows` says whether a group is one of this run.

    Raises:
        TypeError: `group` is no Group.
        CollectiveError: it is one that this run does not know: there, nobody else could hear of a mistake.
    """
    if group is None:
        return Asked(op, rank, world, label)
    if not isinstance(group, Group):
        raise TypeError(f"rank {rank}: {op}: group must be a Group, got {type(group).__name__}")
    if not knows(group):
        raise CollectiveError(
            f"rank {rank}: {op}: group {group.name} of {list(group.ranks)} is not of this run; make it with new_group"
        )
    return Asked(op, rank, group, label)


def checked(asked: Asked, check: Callable[[], Call], devices: Sequence[str]) -> Call:
    """The call of `check`, if its label is one and its tensors live where this rank's may.

    Raises:
        TypeError, ValueError, CollectiveError: as `check` does, or for the label or the device.
    """
    check_label(asked.op, asked.rank, asked.label)
    return _on_device(check(), devices)


def _on_device(call: Call, devices: Sequence[str]) -> Call:
    """The call, if its tensors live where this rank's may; CollectiveError otherwise."""
    if call.device and call.device not in devices:
        raise CollectiveError(
            f"rank {call.rank}: {call.op}: tensors are on {call.device}, expected {' or '.join(dict.fromkeys(devices))}"
        )
    return call

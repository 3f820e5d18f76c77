"""Calls as data: collectives, in bytes, and the set-up of groups and streams, in which all ranks must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from scenarios.seam.arguments import Issue, check_group, check_stream
from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.group import Group

# What a wrong argument raises on the rank that gave it.
MISTAKES = (TypeError, ValueError, CollectiveError)
SET_UP_MISTAKES = (*MISTAKES, ProgramError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One member's side of one collective, in bytes; `send_bytes` and `recv_bytes` by group rank, for all-to-all.
    Where members represent several ranks, `expected_send` and `expected_recv` are what goes to, and comes from, each.

    `parts` are the bytes of each tensor of a call that has several, and `layout` a checksum of them, which members
    tell each other. `root` is a group rank: the source of a broadcast, the peer of a send or recv, else -1. `mistake`
    is what this rank's own arguments are refused with: such a call takes its place in the group's order, and all
    members fail.
    """

    op: str
    group: Group
    rank: int
    label: str = ""
    role: str = ""
    dtype: str = ""
    device: str = ""
    element_size: int = 1
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_sent: int = 0
    send_bytes: tuple[int, ...] = ()
    recv_bytes: tuple[int, ...] = ()
    expected_send: tuple[float, ...] = ()
    expected_recv: tuple[float, ...] = ()
    parts: tuple[int, ...] = ()
    layout: int = 0
    reduce: str = ""
    root: int = -1
    mistake: str = ""

    @staticmethod
    def of(issue: Issue, example: Tensor, **sizes: Any) -> Call:
        """The call of checked arguments; `example` is one of its tensors, `sizes` are further fields."""
        return Call(
            op=issue.op,
            group=issue.group,
            rank=issue.rank,
            label=issue.label,
            role=issue.role,
            dtype=str(example.dtype)[len("torch.") :],
            device=example.device.type,
            element_size=example.element_size(),
            **sizes,
        )

    @property
    def name(self) -> str:
        """The operation as a person reads it in an error."""
        return f"{self.op} '{self.label}'" if self.label else self.op

    def met_in(self, group: Group) -> Call:
        """The call as the members of `group` meet in it: itself, or of a send or recv one of a pair, source first."""
        if group is self.group:
            return self
        return replace(self, group=group, root=1 - group.index(self.rank))


def never_awaited(rank: int, what: str) -> str:
    """The error at the end of a program for a Work that nobody awaited."""
    return f"rank {rank}: {what} was issued but never awaited"


@dataclass(frozen=True, slots=True)
class SetUp:
    """One rank's call: the stream that it makes, or on which it makes a group of `ranks`.

    `mistake` is what this rank's own arguments are refused with: such a call takes its place in the order all the same.
    """

    verb: str = ""
    stream: str = ""
    ranks: tuple[int, ...] = ()
    mistake: str = ""

    @property
    def name(self) -> str:
        """The call as a person reads it."""
        return f"stream '{self.stream}'" if self.verb == "stream" else f"new_group {list(self.ranks)}"

    def __str__(self) -> str:
        return self.name if self.verb == "stream" or self.stream == "main" else f"{self.name} on stream {self.stream}"


def new_group_set_up(rank: int, ranks: object, world_size: int, stream: str) -> SetUp:
    """The checked call; see `check_group` for what it raises."""
    return SetUp("new_group", stream, check_group(rank, ranks, world_size))


def stream_set_up(rank: int, name: object, taken: Sequence[str]) -> SetUp:
    """The checked call; see `check_stream` for what it raises."""
    return SetUp("stream", check_stream(rank, name, taken))


def set_up_disagreement(set_ups: Mapping[int, SetUp]) -> str | None:
    """One sentence when the calls of the ranks, by rank, are not the same, else None."""
    first = min(set_ups)
    for rank in sorted(set_ups):
        if set_ups[rank].mistake:
            return set_ups[rank].mistake
    for rank in sorted(set_ups):
        if set_ups[rank] != set_ups[first]:
            return f"rank {first} calls {set_ups[first]}, but rank {rank} calls {set_ups[rank]}"
    return None

"""Calls as data: collectives, in bytes, and the set-up of groups and streams, on which all ranks must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from scenarios.seam.arguments import Issue, check_group, check_stream
from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.group import Group
from scenarios.seam.roles import NO_PURPOSE, Purpose

# Exceptions for wrong arguments, raised on the rank that passed them.
MISTAKES = (TypeError, ValueError, CollectiveError)
SET_UP_MISTAKES = (*MISTAKES, ProgramError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One member's side of one collective, in bytes.

    Attributes:
        send_bytes, recv_bytes: of an all-to-all, by group rank.
        expected_send, expected_recv: where members represent several ranks, the bytes to and from each of these.
        parts: bytes of each tensor of a call that has several.
        layout: checksum of `parts`, which members compare.
        root: group rank of the source of a broadcast or the peer of a send or recv, else -1.
        mistake: why this rank's own arguments were refused. Such a call takes its place in the group's order, and all
            members fail.
    """

    op: str
    group: Group
    rank: int
    label: str = ""
    purpose: Purpose = NO_PURPOSE
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
        """Return the call for checked arguments; `example` is one of its tensors, `sizes` are further fields."""
        return Call(
            op=issue.op,
            group=issue.group,
            rank=issue.rank,
            label=issue.label,
            purpose=issue.purpose,
            dtype=str(example.dtype)[len("torch.") :],
            device=example.device.type,
            element_size=example.element_size(),
            **sizes,
        )

    @property
    def name(self) -> str:
        """Operation and label, as error messages name them."""
        return f"{self.op} '{self.label}'" if self.label else self.op

    def for_group(self, group: Group) -> Call:
        """Return the call as the members of `group` see it; a send or recv becomes a call of a pair, source first."""
        if group is self.group:
            return self
        return replace(self, group=group, root=1 - group.index(self.rank))


def never_awaited(rank: int, what: str) -> str:
    """Return the error message for a Work that the program never awaited."""
    return f"rank {rank}: {what} was issued but never awaited"


@dataclass(frozen=True, slots=True)
class SetUp:
    """A rank's set-up call: a stream that it makes, or a stream on which it makes a group of `ranks`.

    `mistake` is why this rank's own arguments were refused; such a call still takes its place in the order.
    """

    verb: str = ""
    stream: str = ""
    ranks: tuple[int, ...] = ()
    mistake: str = ""

    @property
    def name(self) -> str:
        """Call as error messages name it."""
        return f"stream '{self.stream}'" if self.verb == "stream" else f"new_group {list(self.ranks)}"

    def __str__(self) -> str:
        return self.name if self.verb == "stream" or self.stream == "main" else f"{self.name} on stream {self.stream}"


def new_group_set_up(rank: int, ranks: object, world_size: int, stream: str) -> SetUp:
    """Check and return a call that makes a group; see `check_group` for what it raises."""
    return SetUp("new_group", stream, check_group(rank, ranks, world_size))


def stream_set_up(rank: int, name: object, taken: Sequence[str]) -> SetUp:
    """Check and return a call that makes a stream; see `check_stream` for what it raises."""
    return SetUp("stream", check_stream(rank, name, taken))


def set_up_disagreement(set_ups: Mapping[int, SetUp]) -> str | None:
    """Return an error sentence if the ranks' calls (by rank) differ or one was refused, else None."""
    first = min(set_ups)
    for rank in sorted(set_ups):
        if set_ups[rank].mistake:
            return set_ups[rank].mistake
    for rank in sorted(set_ups):
        if set_ups[rank] != set_ups[first]:
            return f"rank {first} calls {set_ups[first]}, but rank {rank} calls {set_ups[rank]}"
    return None

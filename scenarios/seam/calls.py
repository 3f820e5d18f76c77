"""Collective calls as data, in bytes; `collectives` makes and compares them, the worlds carry them out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group

# What a wrong argument raises on the rank that gave it.
MISTAKES = (TypeError, ValueError, CollectiveError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One member's side of one collective, in bytes; `send_bytes` and `recv_bytes` by group rank, for all-to-all.
    Where members represent several ranks, `expected_send` and `expected_recv` are what goes to, and comes from, each.

    `root` is a group rank: the source of a broadcast, the peer of a send or recv, else -1. `mistake` is what this
    rank's own arguments are refused with: such a call takes its place in the group's order, and all members fail.
    """

    op: str
    group: Group
    rank: int
    label: str = ""
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

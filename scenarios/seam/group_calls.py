"""Calls of `new_group` and `stream` as data: all ranks of the world make the same ones, in the same order.

The same sentences in both worlds when they do not; how ranks hear of each other's is left to the worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scenarios.seam.arguments import check_group, check_stream
from scenarios.seam.calls import MISTAKES
from scenarios.seam.errors import ProgramError

# What a wrong argument raises on the rank that gave it.
SET_UP_MISTAKES = (*MISTAKES, ProgramError)


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


def refused_set_up(mistake: BaseException) -> SetUp:
    """The call whose arguments were refused, for the other ranks to hear of."""
    return SetUp(mistake=str(mistake))


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

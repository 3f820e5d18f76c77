"""What a communication library is to a real rank: a group's handle, and how each collective begins on it.

Arguments are checked by `scenarios.seam.collectives` before; lanes wait and take times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from real.rank.lanes import Lane
from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.payload import as_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A group that this rank is in. `order` gives, for each rank of the handle, its place in the group.

    torch.distributed sorts the ranks of a group; a program may have named them in another order.
    """

    group: Group
    handle: dist.ProcessGroup
    order: tuple[int, ...]

    @property
    def is_sorted(self) -> bool:
        """Whether both orders are the same."""
        return self.order == tuple(range(len(self.order)))


@dataclass(frozen=True, slots=True)
class Sent:
    """A collective on its way, what is left to do with the buffers once it has ended, and further ones that it uses."""

    work: dist.Work
    finish: Callable[[], None] | None = None
    held: object = None


# How a collective begins, from the checked call and what its verb was given.
Start = Callable[[Joined, Call, Issue], Sent]


class Library(Protocol):
    """gloo, NCCL, ...: `lanes` is how many calls on one group it serves at a time, `backend` torch's name for it."""

    backend: str
    lanes: int
    device: torch.device
    starts: dict[str, Start]  # by the collective's name

    def __init__(self, device: torch.device) -> None: ...

    @staticmethod
    def at(local_rank: int) -> Library:
        """Make the library of one rank of this machine; ScenarioError if the machine has no device for it."""
        ...

    def open(self, joined: Joined) -> None:
        """Make now, with all members, what a first call on the group would have to make."""
        ...

    def new_lane(self, *, is_main: bool) -> Lane:
        """Give what a stream of the program is on the device."""
        ...

    def between_steps(self) -> None:
        """Do what takes the host some time, and is not to be part of a step."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A contiguous tensor and its bytes for each member, in group order."""

    tensor: Tensor
    sizes_bytes: Sequence[int]

    def chunks(self) -> Sequence[Tensor]:
        """Views of its bytes."""
        return split(as_bytes(self.tensor), self.sizes_bytes)


def split(flat: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Views of consecutive parts."""
    return torch.split(flat, list(sizes))

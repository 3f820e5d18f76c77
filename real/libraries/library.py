"""What a communication library is to a real rank: a group's handle, and how each collective begins on it.

Arguments are checked by `scenarios.seam.collectives` before; lanes wait and take times.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from real.libraries.moves import (
    COALESCED_REDUCTIONS,
    REDUCTIONS,
    Joined,
    Sent,
    arithmetic_of,
    as_real,
    divide,
    product,
    scattered,
    starts_of,
)
from real.rank.lanes import Lane
from scenarios.seam.payload import resolved, without_grad


class Library:
    """A library on one device, by itself as one that serves CPUs: gloo, NCCL, ..."""

    backend: str  # torch's name for it
    lanes: int  # how many calls on one group it serves at a time
    has_averages = True

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.starts = starts_of(self)

    @classmethod
    def at(cls, local_rank: int) -> Library:
        """Make the library of one rank of this machine; ScenarioError if the machine has no device for it."""
        raise NotImplementedError

    def open(self, joined: Joined) -> None:
        """Make now, with all members, what a first call on the group would have to make."""

    def new_lane(self, *, is_main: bool) -> Lane:
        """Give what a stream of the program is on the device."""
        return Lane()

    def between_steps(self) -> None:
        """Do what takes the host some time, and is not to be part of a step."""

    def barrier(self, joined: Joined) -> Sent:
        """Wait until all members are here."""
        raise NotImplementedError

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Sent:
        """Exchange one tensor of any size with each member, in group order."""
        raise NotImplementedError

    def all_reduce(self, joined: Joined, tensor: Tensor, reduce: str) -> Sent:
        """Reduce in place, or by way of a wider type; an average that the library lacks is a sum, divided."""
        if tensor.is_complex() and reduce == "product":
            return product(joined, tensor)
        arithmetic = arithmetic_of(tensor)
        is_copy = arithmetic.data_ptr() != tensor.data_ptr()
        divides = reduce == "avg" and not self.has_averages
        work = joined.handle.allreduce([arithmetic], REDUCTIONS["sum" if divides else reduce])
        if not (divides or is_copy):
            return Sent(work)

        def finish() -> None:
            if divides:
                divide(arithmetic, joined.group.size)
            if is_copy:
                as_real(tensor).copy_(arithmetic)

        return Sent(work, finish)

    def all_reduce_coalesced(self, joined: Joined, tensors: Sequence[Tensor], reduce: str) -> Sent:
        """Reduce several in place by torch's own call; what it cannot add, as one tensor."""
        arithmetic = [arithmetic_of(tensor) for tensor in tensors]
        is_copy = any(wide.data_ptr() != own.data_ptr() for wide, own in zip(arithmetic, tensors, strict=True))
        if is_copy or (tensors[0].is_complex() and reduce == "product"):
            return self._as_one(joined, tensors, reduce)
        divides = reduce == "avg" and not self.has_averages
        work = joined.handle.allreduce_coalesced(arithmetic, COALESCED_REDUCTIONS["sum" if divides else reduce])
        if not divides:
            return Sent(work, held=arithmetic)

        def finish() -> None:
            for each in arithmetic:
                divide(each, joined.group.size)

        return Sent(work, finish, arithmetic)

    def _as_one(self, joined: Joined, tensors: Sequence[Tensor], reduce: str) -> Sent:
        flat = torch.cat([without_grad(tensor).reshape(-1) for tensor in tensors])
        sent = self.all_reduce(joined, flat, reduce)

        def finish() -> None:
            if sent.finish is not None:
                sent.finish()
            for own, piece in zip(tensors, flat.split([each.numel() for each in tensors]), strict=True):
                without_grad(own).view(-1).copy_(piece)

        return Sent(sent.work, finish, flat)

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> Sent:
        """Give this member's share of the reduced input: by hand, an all-reduce of the whole."""
        whole = resolved(input).clone()
        return scattered(self.all_reduce(joined, whole, reduce), whole, joined, output)

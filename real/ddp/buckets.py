"""Maps DDP's current buckets to the buckets that a PowerSGD state remembers.

PowerSGD's memory belongs to the parameters of one bucket, in order. But DDP begins every process with one bucket for
all parameters, and rebuilds its buckets once it has seen the order in which gradients arrive (torch 2.11 to 2.13). So a
restored state keeps the buckets that it remembers: each step copies gradients into these buckets and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from scenarios.compression import Bucket
from scenarios.modules.ddp_buckets import GradientBucket

Form = tuple[tuple[int, ...], torch.dtype]
Members = tuple[int, ...]


class DdpBucket(Bucket, Protocol):
    """A bucket with the part of torch's `GradBucket` that is used."""

    def parameters(self) -> list[Tensor]: ...


@dataclass
class BucketLayout:
    """A list of buckets as stored with a state; a parameter's number is the position at which DDP first showed it.

    `hook` is the name of the hook that filled the state's memory.
    """

    forms: list[Form] = field(default_factory=list)
    buckets: list[Members] = field(default_factory=list)
    hook: str = ""

    def belong_to(self, hook: str, remembers: bool) -> None:
        """Assign the buckets to a hook.

        Raises:
            ValueError: the state has memory of another hook's buckets (`remembers` says whether it has any).
        """
        if remembers and self.hook not in ("", hook):
            raise ValueError(f"the PowerSGD state remembers buckets of {self.hook}, expected a new state for {hook}")
        self.hook = hook


@dataclass(frozen=True, slots=True)
class BucketPiece:
    """A gradient inside one of DDP's buckets: `flat` [numel] in memory order, and `gradient` in its own shape."""

    flat: Tensor
    gradient: Tensor


@dataclass(frozen=True, slots=True)
class Direct:
    """A bucket of DDP's own, reduced in place."""

    bucket: Bucket

    @property
    def device(self) -> torch.device:
        return self.bucket.buffer().device

    def play(self, reduce: Callable[[Bucket], object]) -> None:
        """Reduce DDP's bucket in place; called once, on the thread and the stream of the reduction."""
        reduce(self.bucket)


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A bucket of the layout, reduced as a copy because its gradients lie in other buckets of DDP."""

    index: int
    pieces: Sequence[BucketPiece]
    is_last: bool

    @property
    def device(self) -> torch.device:
        return self.pieces[0].flat.device

    def play(self, reduce: Callable[[Bucket], object]) -> None:
        """Copy the gradients into one buffer, reduce the buffer, and copy the result back."""
        buffer = torch.cat([piece.flat for piece in self.pieces])
        parts = buffer.split_with_sizes([piece.flat.numel() for piece in self.pieces])
        gradients = [
            # Copies keep the gradients' strides, so that results are copied back as flat memory.
            part.as_strided(piece.gradient.shape, piece.gradient.stride())
            for part, piece in zip(parts, self.pieces, strict=True)
        ]
        reduce(_Copy(self.index, buffer, gradients, self.is_last))
        for piece, part in zip(self.pieces, parts, strict=True):
            piece.flat.copy_(part)


class _Copy(GradientBucket):
    """A bucket of copied gradients with the strides of DDP's gradients."""

    def __init__(self, index: int, buffer: Tensor, gradients: list[Tensor], is_last: bool) -> None:
        super().__init__(index, buffer, [tuple(gradient.shape) for gradient in gradients], is_last=is_last)
        self._gradients = gradients


Reduction: TypeAlias = Direct | Regrouped


class Regrouping:
    """A map from the buckets of DDP's steps to the buckets of a layout; one object for each process and layout."""

    def __init__(self, layout: BucketLayout) -> None:
        self._layout = layout
        self._is_stored = bool(layout.buckets)
        self._numbers: dict[int, int] = {}
        self._parameters: list[Tensor] = []  # kept alive: ids of dead tensors are reused
        self._knows_all = False
        self._first_members: Members = ()
        self._start_step((), False)

    def take(self, bucket: DdpBucket, remembers: bool) -> Sequence[Reduction]:
        """Return the buckets to reduce once DDP has filled one: that bucket, none yet, or, at the last bucket, all
        regrouped ones.

        `remembers` says whether the state has memory by bucket. The layout is kept if the state has memory, or if the
        layout was stored and DDP still has its initial buckets; otherwise the layout follows DDP.

        Raises:
            ValueError: the parameters are not those of the layout.
        """
        members = self._members(bucket)
        if bucket.index() == 0:
            self._start_step(members, remembers)
        self._seen.append(members)
        if bucket.is_last():
            self._end_step()
        # A bucket of DDP that equals the layout's next one needs no copy.
        if self._is_at_its_place(members):
            return [Direct(bucket)]
        self._hold(bucket, members)
        return self._regroup() if bucket.is_last() else []

    def _start_step(self, members: Members, remembers: bool) -> None:
        self._seen: list[Members] = []
        self._pieces: dict[int, BucketPiece] = {}
        self._first_members = self._first_members or members
        # DDP rebuilds its buckets once: until then the first bucket equals the first one of the process.
        is_as_at_first = self._is_stored and members == self._first_members
        self._keeps_layout = bool(self._layout.buckets) and (remembers or is_as_at_first)

    def _end_step(self) -> None:
        expected = len(self._layout.forms)
        if len(self._parameters) < expected:
            raise ValueError(
                f"the model has {len(self._parameters)} parameters with gradients, expected {expected} as in the"
                " model that the PowerSGD state was stored with"
            )
        self._knows_all = True
        if not self._keeps_layout:
            self._layout.buckets = self._seen

    def _is_at_its_place(self, members: Members) -> bool:
        place = len(self._seen)
        return not self._keeps_layout or (not self._pieces and self._layout.buckets[place - 1 : place] == [members])

    def _hold(self, bucket: DdpBucket, members: Members) -> None:
        gradients = bucket.gradients()
        flats = bucket.buffer().split_with_sizes([gradient.numel() for gradient in gradients])
        self._pieces.update(zip(members, map(BucketPiece, flats, gradients), strict=True))

    def _regroup(self) -> list[Regrouped]:
        left = [(index, members) for index, members in enumerate(self._layout.buckets) if members[0] in self._pieces]
        expected = {member for _, members in left for member in members}
        if expected != self._pieces.keys():
            raise ValueError(
                f"DistributedDataParallel reduces parameters {sorted(self._pieces)}, expected {sorted(expected)} as in"
                " the buckets that the PowerSGD state remembers"
            )
        return [
            Regrouped(index, [self._pieces[member] for member in members], is_last=index == left[-1][0])
            for index, members in left
        ]

    def _members(self, bucket: DdpBucket) -> Members:
        return tuple(self._number(bucket, parameter) for parameter in bucket.parameters())

    def _number(self, bucket: DdpBucket, parameter: Tensor) -> int:
        number = self._numbers.get(id(parameter))
        if number is None:
            number = self._numbers[id(parameter)] = len(self._parameters)
            self._check(bucket, number, (tuple(parameter.shape), parameter.dtype))
            self._parameters.append(parameter)
        return number

    def _check(self, bucket: DdpBucket, number: int, form: Form) -> None:
        forms = self._layout.forms
        if self._knows_all:
            raise ValueError(
                f"bucket {bucket.index()} has a parameter of shape {form[0]} that was in none of the first step:"
                " expected a PowerSGD state of its own for each DistributedDataParallel"
            )
        if not self._is_stored:
            forms.append(form)
        elif number >= len(forms) or forms[number] != form:
            expected = "{} {}".format(*forms[number]) if number < len(forms) else "none"
            raise ValueError(
                f"parameter {number} of the model is {form[0]} {form[1]}, expected {expected} as in the model that"
                " the PowerSGD state was stored with"
            )

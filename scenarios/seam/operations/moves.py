"""Copies as pure data: concatenations, and copies between the host and a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Cat(DescribedOperator):
    """A `cat` or `stack` of `inputs` tensors into one of `elements` elements.

    `contiguous`: all inputs and the result are contiguous; torch then copies 16 bytes at a time. `dims` are the
    result's dimensions; with contiguous inputs, those before and those behind the concatenated one are merged.
    """

    dtype: str
    elements: int
    inputs: int
    contiguous: bool = True
    dims: int = 2

    def words(self) -> Words:
        return "cat", f"{self.elements} of {self.inputs} tensors, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCopy(DescribedOperator):
    """A copy of `size_bytes` from the host's memory to the GPU's (`to_gpu`) or back.

    `pinned`: the host's memory is page-locked, so that the GPU accesses it directly.
    """

    size_bytes: int
    to_gpu: bool
    pinned: bool = True

    def words(self) -> Words:
        pinned = "" if self.pinned else ", not pinned"
        return f"copy {'from' if self.to_gpu else 'to'} the host", f"{self.size_bytes} bytes{pinned}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRankCollective(DescribedOperator):
    """A NCCL collective of a group of one rank: a copy of `size_bytes`, or nothing where it works in place."""

    size_bytes: int
    in_place: bool

    def words(self) -> Words:
        return "collective of one rank", f"{self.size_bytes} bytes{', in place' if self.in_place else ''}"

"""A description of convolutions, as their law takes it; needs no GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scenarios.seam.operations.operation import DescribedOperator, Words, by


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution(DescribedOperator):
    """A convolution of [batch, in_channels, *size] into [batch, out_channels, *out_size], or one of its gradients.

    `size`, `out_size`, `kernel` and `stride` have one number per spatial dimension. `is_channels_last`: channels are
    the contiguous dimension in memory. `dtype` is the arithmetic's ("tf32" for float32 tensors multiplied as TF32).
    """

    batch: int
    in_channels: int
    out_channels: int
    size: tuple[int, ...]
    out_size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    groups: int = 1
    dtype: str
    is_channels_last: bool = False
    makes: Literal["output", "input_gradient", "weight_gradient"] = "output"

    @property
    def inputs(self) -> int:
        """Number of elements of the input."""
        return self.batch * self.in_channels * math.prod(self.size)

    @property
    def outputs(self) -> int:
        """Number of elements of the output."""
        return self.batch * self.out_channels * math.prod(self.out_size)

    @property
    def weights(self) -> int:
        """Number of elements of the weight."""
        return self.out_channels * self.in_channels // self.groups * math.prod(self.kernel)

    def words(self) -> Words:
        name = "convolution" if self.makes == "output" else f"convolution_backward, {self.makes.replace('_', ' ')}"
        given, weight = by(self.batch, self.in_channels, *self.size), by(self.out_channels, *self.kernel)
        shapes = f"{given} to {weight}"
        shapes += f", stride {by(*self.stride)}" if any(step > 1 for step in self.stride) else ""
        shapes += f", {self.groups} groups" if self.groups > 1 else ""
        return name, f"{shapes}, {self.dtype}{', channels last' if self.is_channels_last else ''}"

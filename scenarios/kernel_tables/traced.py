"""Calls of operators in a profiler's trace, with the kernels that they launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A kernel or copy on the GPU; its time in microseconds, and the blocks of its grid.

    `is_host_copy`: it copies between the host and the GPU.
    """

    name: str
    us: float
    blocks: int = 0
    is_host_copy: bool = False


@dataclass(slots=True)
class TracedCall:
    """A call of an operator, annotation or function of autograd: its kernels, and its inner calls that launched some.

    `dims`, `strides`, `types` and `values` are its arguments as the profiler writes them. `gradients` are the
    dimensions of the inputs of its function of autograd, which equal those of its results; None without a backward
    pass.
    """

    name: str
    dims: Sequence[Any] = ()
    strides: Sequence[Any] = ()
    types: Sequence[str] = ()
    values: Sequence[str] = ()
    gradients: Sequence[Any] | None = None
    kernels: list[TracedKernel] = field(default_factory=list)
    calls: list[TracedCall] = field(default_factory=list)

"""A row of a table of measured operators."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOperator:
    """A measured time of `operations`, which one call runs one after the other; most calls run one.

    Attributes:
        us: mean time in us of all kernels of a call on an otherwise idle GPU, without gaps between kernels.
        calls: number of calls in the mean.
        is_cold: whether caches held nothing of the inputs.
    """

    operations: tuple[Operation, ...]
    us: float
    calls: int = 1
    is_cold: bool = False

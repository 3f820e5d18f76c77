"""A measured time of operators, which a table of measured operators holds."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOperator:
    """A measured time of `operations`, which one call runs one after the other: most calls run one.

    `us` is the mean time of all kernels of such a call on an otherwise idle GPU, in microseconds, without what lies
    between events or kernels; `calls` how many calls the mean is of. `is_cold`: no cache held anything before.
    """

    operations: tuple[Operation, ...]
    us: float
    calls: int = 1
    is_cold: bool = False

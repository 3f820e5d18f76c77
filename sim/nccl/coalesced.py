"""Splits several collectives of one group (ncclGroupStart, ncclGroupEnd) as NCCL does, which runs them in one kernel.

Of collectives of one kind, smallest first, those below four times the smallest get one algorithm and protocol: NCCL's
choice for their sum (ncclPrepareTasks in src/enqueue.cc of NCCL 2.28). All go in one kernel, in which channels share
the bytes of all evenly (scheduleCollTasksToPlan).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# "We aggregate operations that are within 4X size of each other."
_ALIKE = 4


def runs(parts_bytes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the sizes in bytes of each run with one algorithm, the smallest first; empty parts are not sent."""
    left = sorted(size for size in parts_bytes if size)
    while left:
        below = _ALIKE * left[0]
        alike = [size for size in left if size < below]
        yield alike
        left = left[len(alike) :]

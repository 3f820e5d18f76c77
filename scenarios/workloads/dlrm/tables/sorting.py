"""What sorting ids takes on a GPU, wherever they are sorted: for an update, or to find those that differ."""

from __future__ import annotations

from scenarios.seam.kernel import Kernel

# An id, or the key that it is sorted by.
KEY_BYTES = 8
# Keys are sorted digit by digit of 8 bits, of which row numbers have four.
SORT_PASSES = 4
# Numbering them, where each differs from the one before, and handing the numbers back to the ids.
_NUMBERING_LAUNCHES = 4


def distinct_kernel(ids: float) -> Kernel:
    """Finding the distinct ones of so many ids: they are sorted with their places, compared and numbered."""
    moved = (SORT_PASSES + 1) * 2 * KEY_BYTES * ids
    return Kernel(
        kind="permute", bytes_read=moved, bytes_written=moved, launches=SORT_PASSES + _NUMBERING_LAUNCHES, dtype=""
    )

"""The cost of sorting ids on a GPU, for an update or to find distinct ids."""

from __future__ import annotations

from scenarios.seam.kernel import Kernel

# Bytes of an id, or of its sort key.
KEY_BYTES = 8
# Passes of a radix sort over digits of 8 bits; row numbers have four.
SORT_PASSES = 4
# Launches that compare neighbours, number the distinct ids, and return the numbers to the ids.
_NUMBERING_LAUNCHES = 4


def distinct_kernel(ids: float) -> Kernel:
    """Return the kernel that finds distinct ids: sorts them with their places, compares and numbers them."""
    moved = (SORT_PASSES + 1) * 2 * KEY_BYTES * ids
    return Kernel(
        kind="permute", bytes_read=moved, bytes_written=moved, launches=SORT_PASSES + _NUMBERING_LAUNCHES, dtype=""
    )

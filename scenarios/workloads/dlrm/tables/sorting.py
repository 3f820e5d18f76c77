"""What sorting ids takes on a GPU, wherever they are sorted: for an update, or to find those that differ."""

from __future__ import annotations

# An id, or the key that it is sorted by.
KEY_BYTES = 8
# Keys are sorted digit by digit of 8 bits, of which row numbers have four.
SORT_PASSES = 4

"""The step that each rank of this machine is in, in memory shared with who watches: to write it takes no system call.

What a rank wrote outlives it, however it ends. Ranks of other machines tell theirs by their `line`; what follows from a
step is left to `roll`.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

# No step of any program: a rank that has begun none.
_NONE = -(1 << 63)


class Steps:
    """A mapped file in a run's spool folder: one number of 64 bits for each rank, written by that rank alone."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        # One store of an aligned word each, so that nobody reads half of one.
        self._numbers = memoryview(self._map).cast("q")

    def enter(self, rank: int, index: int) -> None:
        """The rank is in this step from now on."""
        self._numbers[rank] = index

    def of_all(self) -> list[int | None]:
        """The step of each rank; None before its first."""
        return [None if number == _NONE else number for number in self._numbers.tolist()]


def lay_out(folder: Path, size: int) -> Steps:
    """For that many ranks, none of which has begun a step."""
    _path_of(folder).write_bytes(struct.pack("q", _NONE) * size)
    return Steps(_path_of(folder))


def found(folder: Path) -> Steps | None:
    """What was laid out in this folder; None if nothing was."""
    return Steps(_path_of(folder)) if _path_of(folder).exists() else None


def _path_of(folder: Path) -> Path:
    return folder / "steps"

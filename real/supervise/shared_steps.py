"""Keeps the step of each rank of this machine in memory shared with the supervisor: no system call per step.

What a rank wrote outlives it, however it ends. Ranks of other machines report theirs over the control channel.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

# No step yet.
_NONE = -(1 << 63)


class Steps:
    """A mapped file in a run's spool folder: one number of 64 bits for each rank, written by that rank alone."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        # One store of an aligned word each, so that nobody reads half of one.
        self._numbers = memoryview(self._map).cast("q")

    def enter(self, rank: int, index: int) -> None:
        """Note that a rank begins a step."""
        self._numbers[rank] = index

    def of_all(self) -> list[int | None]:
        """The step of each rank; None before its first."""
        return [None if number == _NONE else number for number in self._numbers.tolist()]


def lay_out(folder: Path, size: int) -> Steps:
    """Create the file for `size` ranks, none of which has begun a step."""
    _path_of(folder).write_bytes(struct.pack("q", _NONE) * size)
    return Steps(_path_of(folder))


def found(folder: Path) -> Steps | None:
    """Open the file that `lay_out` created in this folder; None if there is none."""
    return Steps(_path_of(folder)) if _path_of(folder).exists() else None


def _path_of(folder: Path) -> Path:
    return folder / "steps"

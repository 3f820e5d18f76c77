"""Spools what the ranks of a run measure and print while they run, and removes the spools when the run is stored.

A rank appends its measurements to a file after every step, so that a killed rank loses one step. The file consists of
frames: length and CRC-32 of a payload (little-endian uint32 each), then the payload, written by `marshal`, which takes
a fifth of JSON's time; only the interpreter that wrote a spool reads it. A torn tail is ignored.
"""

from __future__ import annotations

import marshal
import mmap
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from real.launch.job import Job

_HEADER = struct.Struct("<II")


class Spool:
    """A rank's file, open for appending; unbuffered, so that written data survives the process."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = path_of(folder, rank).open("ab", buffering=0)

    def append(self, kind: str, value: Any) -> None:
        """Append a value made of None, bool, int, float, str, tuple, list and dict."""
        payload = marshal.dumps((kind, value))
        # One write for header and payload, so that a kill between two writes cannot part them.
        self._file.write(_HEADER.pack(len(payload), zlib.crc32(payload)) + payload)

    def close(self) -> None:
        """Close the spool's file."""
        self._file.close()


def path_of(folder: Path, rank: int) -> Path:
    """Return the path of a rank's spool in the run's spool folder."""
    return folder / f"rank-{rank}.spool"


def read(folder: Path, rank: int) -> bytes:
    """Return all that a rank has spooled; empty if the rank never began."""
    path = path_of(folder, rank)
    return path.read_bytes() if path.exists() else b""


def frames(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the whole frames of a spool, in order: (kind, value)."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        size, checksum = _HEADER.unpack_from(data, offset)
        payload = data[offset + _HEADER.size : offset + _HEADER.size + size]
        if len(payload) < size or zlib.crc32(payload) != checksum:
            return
        yield marshal.loads(payload)
        offset += _HEADER.size + size


# Stands for "no step yet".
_NONE = -(1 << 63)
STEPS_FILE = "steps"


class Steps:
    """A mapped file in a run's spool folder: one 64-bit number for each rank, written by that rank alone."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        # Writing an aligned word is one store, so no process reads half a number.
        self._numbers = memoryview(self._map).cast("q")

    def enter(self, rank: int, index: int) -> None:
        """Note that a rank begins a step."""
        self._numbers[rank] = index

    def of_all(self) -> list[int | None]:
        """Return the current step of each rank; None before its first step."""
        return [None if number == _NONE else number for number in self._numbers.tolist()]


def lay_out(folder: Path, size: int) -> Steps:
    """Create the file for `size` ranks, none of which has begun a step."""
    _path_of(folder).write_bytes(struct.pack("q", _NONE) * size)
    return Steps(_path_of(folder))


def open_steps(folder: Path) -> Steps | None:
    """Open the file that `lay_out` created in this folder; return None if there is none."""
    return Steps(_path_of(folder)) if _path_of(folder).exists() else None


def _path_of(folder: Path) -> Path:
    return folder / STEPS_FILE


# The ranks' job (see `real.launch.job`).
JOB_FILE = "job"
# Output and tracebacks of a rank.
LOG = "rank-{}.log"
# Exists once the run's folder is whole.
WRITTEN = "written"


def mark_written(folder: Path) -> None:
    """Note that the run is stored: no later end of the run takes anything from it."""
    (folder / WRITTEN).touch()


def put_away(job: Job) -> None:
    """Copy the ranks' logs that are not empty into the run's folder, and remove the spools."""
    for log in sorted(job.spool.glob(LOG.format("*"))):
        if log.stat().st_size and job.out.is_dir():
            with suppress(OSError):  # a log that cannot be kept is no reason to fail
                shutil.copyfile(log, job.out / log.name)
    shutil.rmtree(job.spool, ignore_errors=True)


def log_of(folder: Path, rank: int) -> Path:
    """Return the path of a rank's log."""
    return folder / LOG.format(rank)

"""Shows the progress of a report on stderr, if that is a terminal and it takes over a second."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_QUIET_S = 1.0


class Told(Protocol):
    """Called before each piece of work: what it is, and which of how many."""

    def __call__(self, words: str, number: int, of: int) -> None: ...


def untold(words: str, number: int, of: int) -> None:
    """For whoever does not look."""


@contextmanager
def line() -> Iterator[Told]:
    """One line that is drawn anew; gone at the end. Into a file or a pipe nothing is written."""
    stream, began_s = sys.stderr, time.monotonic()
    is_seen = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    drawn = False

    def tell(words: str, number: int, of: int) -> None:
        nonlocal drawn
        if is_seen and time.monotonic() - began_s >= _QUIET_S:
            stream.write(f"\r\x1b[K{words}: {number} of {of}, {time.monotonic() - began_s:.0f} s")
            stream.flush()
            drawn = True

    try:
        yield tell
    finally:
        if drawn:
            stream.write("\r\x1b[K")
            stream.flush()

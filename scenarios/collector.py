"""Keeps Python's garbage collector from scanning what a command has loaded; imports only the standard library."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Disable garbage collection while loading, which saves a fifth of the time.

    A command's process, which has frozen its initial objects, freezes what is loaded too. Another caller's process does
    not, as that would freeze the caller's garbage as well.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count():
            # Frozen objects are not scanned by later collections; loaded modules live as long as the process.
            gc.freeze()
        if is_enabled:
            gc.enable()

"""Loads a worker's libraries before its first point, so that no point pays for them; Dask calls `dask_setup`."""

from __future__ import annotations

import ctypes
import gc
import signal
from contextlib import suppress

# glibc's mallopt: free memory at the heap's end that is kept, and the size from which memory is mapped separately.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE = {_M_TRIM_THRESHOLD: 2**31 - 1, _M_MMAP_THRESHOLD: 2**25}


def dask_setup(worker: object) -> None:
    """Load torch and all that simulates points; ignore Ctrl-C, as the command ends the workers itself."""
    # A terminal sends Ctrl-C to all processes of its group, and so to the workers.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _keep_freed_memory()
    import twinstep.studies.play  # noqa: F401

    gc.freeze()  # else collections during points scan all that is loaded


def _keep_freed_memory() -> None:
    """Undo Dask's MALLOC_TRIM_THRESHOLD_, with which each tensor gets new pages and points take three times as long."""
    with suppress(OSError, AttributeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, size_bytes in _LARGE.items():
            mallopt(option, size_bytes)

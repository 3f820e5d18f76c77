"""What a worker's process loads before its first point, so that no point pays for it; Dask calls `dask_setup`."""

from __future__ import annotations

import ctypes
import signal
from contextlib import suppress

# glibc's mallopt: what is free at the heap's end before it goes back to the system, and what is mapped by itself.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE = {_M_TRIM_THRESHOLD: 2**31 - 1, _M_MMAP_THRESHOLD: 2**25}


def dask_setup(worker: object) -> None:
    """Load torch and all that plays points; leave Ctrl-C to the command, which ends the workers itself."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _keep_freed_memory()
    import twinstep.studies.play  # noqa: F401


def _keep_freed_memory() -> None:
    """Undo Dask's MALLOC_TRIM_THRESHOLD_, with which each tensor has new pages and points take three times as long."""
    with suppress(OSError, AttributeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, size_bytes in _LARGE.items():
            mallopt(option, size_bytes)

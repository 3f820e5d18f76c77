"""What a worker's process loads before its first point, so that no point pays for it; Dask calls `dask_setup`."""

from __future__ import annotations

import signal


def dask_setup(worker: object) -> None:
    """Load torch and all that plays points; leave Ctrl-C to the command, which ends the workers itself."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    import sim.study.play  # noqa: F401, PLC0415

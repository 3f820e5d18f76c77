"""The machine that a process runs on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPUS = Path("/proc/cpuinfo")  # proc_cpuinfo(5)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_name(cpus: Path = _CPUS) -> str:
    """The processor's name as the kernel tells it, or else its architecture."""
    try:
        lines = cpus.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), platform.machine() or "unknown")

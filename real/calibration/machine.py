"""The machine that a calibration ran on, and how: what `[measured]` of its profile says besides the figures."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from scenarios.config.provenance import Group, Measured
from scenarios.seam.versions import versions

_CPUS = Path("/proc/cpuinfo")  # proc_cpuinfo(5)


def measured_here(command: str, ranks: int, began_s: float, groups: Iterable[Group]) -> Measured:
    """What was measured on this machine, from `began_s` of the monotonic clock until now."""
    return Measured(
        machine=platform.node() or "unknown",
        cpu=cpu_name(),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=versions()["torch"],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        ranks=ranks,
        duration_ns=max(1, round((time.monotonic() - began_s) * 1e9)),
        groups=tuple(groups),
    )


def cpu_name(cpus: Path = _CPUS) -> str:
    """The processor's name as the kernel tells it, or else its architecture."""
    try:
        lines = cpus.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), platform.machine() or "unknown")

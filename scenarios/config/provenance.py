"""Where a profile's figures come from, as frozen values: what a calibration writes and people read; nothing is computed
from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some parameters of a profile, and how far the model with them is off what was measured.

    Errors are predicted over measured, less 1: their median, which a fit keeps near 0, the median of their sizes, and
    the worst with its sign. `spread` is the interquartile range of a measurement's repeats over their median, None
    where nothing was repeated. Beyond `least_bytes` to `most_bytes` is extrapolation.
    """

    name: str
    median_error: float
    typical_error: float
    worst_error: float
    least_bytes: int
    most_bytes: int
    spread: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One calibration. `date` is an ISO time, `command` repeats it, `ranks` took part.

    What is "", and a duration of 0, is not known: nobody measured here, but read logs.
    """

    machine: str
    date: str
    command: str
    ranks: int
    cpu: str = ""
    kernel: str = ""
    python: str = ""
    torch: str = ""
    duration_ns: int = 0
    groups: tuple[Group, ...] = ()

"""Faults: parts of a cluster that run below their rates, and when. Planner and library do not see them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One GPU, by its host and its number on the host; a fault slows its kernels, not their launches."""

    host: int
    gpu: int


@dataclass(frozen=True, slots=True)
class NicPart:
    """One network interface, by its host and its number on the host, in both directions."""

    host: int
    nic: int


@dataclass(frozen=True, slots=True)
class LeafPart:
    """The uplinks of one leaf switch, in both directions."""

    leaf: int

    @property
    def host(self) -> None:
        """None: a leaf belongs to no single host; all hosts behind the leaf are affected."""
        return None


Part = GpuPart | NicPart | LeafPart


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that slows its part for a time: `speed` is the share of its rates, above 0, that the part reaches.

    Times are since the run's start; without `end_ns` the fault lasts to the run's end.
    """

    part: Part
    speed: float
    begin_ns: int = 0
    end_ns: int | None = None

    def speed_at(self, t_ns: int) -> float:
        """Return the share of its rates that the part reaches at `t_ns`, as far as this fault decides."""
        return self.speed if self.begin_ns <= t_ns and (self.end_ns is None or t_ns < self.end_ns) else 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a part over time: `speeds[n]`, a share of its rates, from `times_ns[n]` on; the first time is 0.

    Work is in ns that it takes at nominal rates.
    """

    times_ns: tuple[int, ...] = (0,)
    speeds: tuple[float, ...] = (1.0,)

    @staticmethod
    def of(faults: Sequence[Fault]) -> Pace:
        """Return the pace of a part with these faults; where they overlap, their speeds multiply."""
        times, speeds = list[int](), list[float]()
        for t_ns in sorted({0, *(one.begin_ns for one in faults), *(one.end_ns or 0 for one in faults)}):
            speed = math.prod((one.speed_at(t_ns) for one in faults), start=1.0)
            if not speeds or speed != speeds[-1]:
                times.append(t_ns)
                speeds.append(speed)
        return Pace(tuple(times), tuple(speeds))

    def speed_at(self, t_ns: float) -> float:
        """Return the share of its rates that the part reaches at `t_ns`."""
        return self.speeds[bisect_right(self.times_ns, t_ns) - 1]

    def takes_ns(self, work_ns: float, from_ns: float) -> float:
        """Return how long work takes that begins at `from_ns`."""
        place, now_ns = bisect_right(self.times_ns, from_ns) - 1, from_ns
        while place + 1 < len(self.times_ns):
            done_ns = self.speeds[place] * (self.times_ns[place + 1] - now_ns)
            if done_ns >= work_ns:
                break
            place, now_ns, work_ns = place + 1, self.times_ns[place + 1], work_ns - done_ns
        return now_ns - from_ns + work_ns / self.speeds[place]

    def work_ns(self, from_ns: float, until_ns: float) -> float:
        """Return the work that is done between two times."""
        ends = (*self.times_ns[1:], math.inf)
        pieces = zip(self.times_ns, ends, self.speeds, strict=True)
        return sum(speed * max(0.0, min(end, until_ns) - max(begin, from_ns)) for begin, end, speed in pieces)

    def mean(self, until_ns: int) -> float:
        """Return the mean speed from 0 to `until_ns`."""
        if until_ns <= 0 or len(self.speeds) == 1:
            return self.speeds[0]
        return self.work_ns(0, until_ns) / until_ns


NOMINAL = Pace()
"""The pace of a part without a fault."""

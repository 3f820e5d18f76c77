"""Faults: parts of a cluster that do not reach their rates, and when. Planner and library know nothing of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One GPU, by its host and its number there. Its kernels are slowed, their launches are not."""

    host: int
    gpu: int


@dataclass(frozen=True, slots=True)
class NicPart:
    """One network interface, by its host and its number there, in both directions."""

    host: int
    nic: int


@dataclass(frozen=True, slots=True)
class LeafPart:
    """The uplinks of one leaf switch, in both directions."""

    leaf: int

    @property
    def host(self) -> None:
        """No host: every one behind the leaf sees it."""
        return None


Part = GpuPart | NicPart | LeafPart


class Fault(ABC):
    """What is wrong with one part, as a function of time.

    A new kind of fault is a subclass here, its keys in `SlowSection`, and how it is built from them.
    """

    part: Part

    @abstractmethod
    def speed_at(self, t_ns: int) -> float:
        """The share of its rates that the part reaches at a time since the run's start, above 0."""


@dataclass(frozen=True, slots=True)
class Slowdown(Fault):
    """A part that is slower by the same share all the time."""

    part: Part
    speed: float

    def speed_at(self, t_ns: int) -> float:
        """See `Fault`."""
        return self.speed

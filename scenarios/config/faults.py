"""Faults: parts of a cluster that run below their rates, and when. Planner and library do not see them."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Fault(ABC):
    """A fault of one part of the cluster, as a function of time.

    A new kind of fault needs a subclass here, keys in `SlowSection`, and code that builds the fault from these keys.
    """

    part: Part

    @abstractmethod
    def speed_at(self, t_ns: int) -> float:
        """Return the share of its rates, above 0, that the part reaches at `t_ns` since the run's start."""


@dataclass(frozen=True, slots=True)
class Slowdown(Fault):
    """A fault that slows its part by a constant share."""

    part: Part
    speed: float

    def speed_at(self, t_ns: int) -> float:
        """Return the constant speed."""
        return self.speed

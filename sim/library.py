"""What a communication library is to the simulator: a `LIBRARY` in `sim.<name>.library` for each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from scenarios.config.hardware import Cluster
from scenarios.config.host_classes import HostClasses
from scenarios.config.interconnect import LibraryName
from scenarios.config.scenario import Scenario
from scenarios.seam.payload import Reduce
from sim.engine.machine import Machine
from sim.hosts.cores import Hosts, Thread
from sim.nccl.model.predictor import Choice
from sim.rank.rendezvous import Rendezvous


class Transport(NamedTuple):
    """How collectives take time on one machine: `play` is told of each member that enters, and in which thread.

    It lets each member finish in the end. `threads` are the hosts' own, where the library models them. `buffer_bytes`
    is what its buffers take of each rank's GPU at the end, where they take something.
    """

    play: Callable[[Rendezvous, int, Thread | None], None]
    threads: Hosts | None = None
    buffer_bytes: Callable[[], Mapping[int, int]] = dict


@dataclass(frozen=True, slots=True)
class Library:
    """gloo, NCCL, ...: `lanes` is how many collectives of one group a rank has under way at a time.

    `reduce` gives what a reduction's outputs hold; `transport` makes the transport of a scenario's run, in which only
    the representatives of the given host classes are simulated, if any are given. `choice` is the library's own
    prediction for a collective of so many bytes on a whole cluster, where it has one.
    """

    lanes: int
    reduce: Reduce
    transport: Callable[[Scenario, Machine, HostClasses | None], Transport]
    choice: Callable[[str, int, Cluster], Choice | None] = lambda op, size_bytes, cluster: None


def library_of(name: LibraryName) -> Library:
    """The library that a scenario names."""
    found: Library = importlib.import_module(f"sim.{name}.library").LIBRARY
    return found

"""The interface of a simulated communication library: `LIBRARY` in `sim.<name>.library`."""

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
from sim.hosts.cores import HostCores, Thread
from sim.nccl.model.predictor import TuningChoice
from sim.rank.rendezvous import Rendezvous


class Transport(NamedTuple):
    """A model of how long collectives of one library take on the simulated cluster.

    Attributes:
        play: called once for each member that enters a collective, with its rendezvous (where the members' calls meet),
            the member's group rank and its simulated thread; it must finish every member in the end.
        threads: the hosts' simulated cores and threads; None if the library models no threads.
        buffer_bytes: returns the bytes of the library's buffers by global rank, at the end of the run.
    """

    play: Callable[[Rendezvous, int, Thread | None], None]
    threads: HostCores | None = None
    buffer_bytes: Callable[[], Mapping[int, int]] = dict


@dataclass(frozen=True, slots=True)
class Library:
    """A communication library (gloo, NCCL); `lanes` is the number of concurrent collectives of one group on a rank.

    `reduce` computes the outputs of a reduction. `transport` creates the transport of a scenario's run; with host
    classes, only their representatives are simulated. `choice` is the library's own prediction for a collective of a
    given size in bytes on a whole cluster, where the library has one.
    """

    lanes: int
    reduce: Reduce
    transport: Callable[[Scenario, Machine, HostClasses | None], Transport]
    choice: Callable[[str, int, Cluster], TuningChoice | None] = lambda op, size_bytes, cluster: None


def library_of(name: LibraryName) -> Library:
    """Import the library that a scenario names."""
    library: Library = importlib.import_module(f"sim.{name}.library").LIBRARY
    return library

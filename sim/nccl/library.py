"""NCCL as the simulator's library: phases, in which members' channels move bytes over links."""

from __future__ import annotations

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from sim.engine.machine import Machine
from sim.library import Library, Transport
from sim.nccl.transport import NcclPhases
from sim.rank.reduction import in_group_order

# NCCL puts a group's collectives on one stream.
_LANES = 1


def _transport(scenario: Scenario, machine: Machine, classes: HostClasses | None) -> Transport:
    return Transport(NcclPhases(machine, flows=scenario.fidelity == "flows", classes=classes))


LIBRARY = Library(_LANES, in_group_order, _transport)

"""Which transport plays a scenario's collectives; how it does that is left to `wire` and `phases`."""

from __future__ import annotations

from scenarios.scenario import Scenario
from sim.machine import Machine
from sim.meeting import Transport
from sim.phases import GlooLinks, NcclPhases
from sim.wire import GlooFlows

# torch's ProcessGroupGloo serves a group's collectives with two threads; NCCL puts them on one stream.
_WORKERS = {"gloo": 2, "nccl": 1}


def lane_width(scenario: Scenario) -> int:
    """How many collectives of one group a rank has under way at a time."""
    return _WORKERS[scenario.library]


def transport(scenario: Scenario, machine: Machine) -> Transport:
    """The scenario's library at the scenario's fidelity."""
    flows = scenario.fidelity == "flows"
    if scenario.library == "nccl":
        return NcclPhases(machine, flows=flows)
    return GlooFlows(machine) if flows else GlooLinks(machine)

"""NCCL as the simulator's library: phases, in which members' channels move bytes over links."""

from __future__ import annotations

from scenarios.config.hardware import Cluster
from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from sim.engine.machine import Machine
from sim.library import Library, Transport
from sim.nccl.costs import costs_of
from sim.nccl.model.predictor import TunedCollective, TuningChoice
from sim.nccl.model.topology import FUNCTIONS
from sim.nccl.rings_and_trees import members_by_host, shape_of
from sim.nccl.transport import NcclPhases
from sim.nccl.tuning import choose
from sim.rank.reduction import in_group_order

# NCCL puts a group's collectives on one stream.
_LANES = 1


def _transport(scenario: Scenario, machine: Machine, classes: HostClasses | None) -> Transport:
    phases = NcclPhases(machine, flows=scenario.run.fidelity == "flows", classes=classes)
    return Transport(phases, buffer_bytes=phases.buffer_bytes)


def _choice(op: str, size_bytes: int, cluster: Cluster) -> TuningChoice | None:
    """Return NCCL's choice for a collective of the whole cluster; None for a collective that NCCL does not tune."""
    function = next((one for one in FUNCTIONS if one == op), None)
    if function is None:
        return None
    costs = costs_of(cluster)
    layout = [rank // cluster.host.gpus for rank in range(cluster.world_size)]
    operation = TunedCollective(function=function, size_bytes=size_bytes)
    return choose(operation, shape_of(members_by_host(layout), costs), costs)


LIBRARY = Library(_LANES, in_group_order, _transport, _choice)

"""Which transport plays a scenario's collectives; how it does that is left to `wire` and `phases`."""

from __future__ import annotations

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from sim.engine.machine import Machine
from sim.gloo.flows import GlooFlows
from sim.gloo.links import GlooLinks
from sim.hosts.cores import Thread
from sim.nccl.transport import NcclPhases
from sim.rank.rendezvous import Meeting, Transport

# torch's ProcessGroupGloo serves a group's collectives with two threads; NCCL puts them on one stream.
_WORKERS = {"gloo": 2, "nccl": 1}

# "links" plays each message of gloo's collectives in groups of up to so many ranks. A ring of n ranks is 12 n * n
# messages and notices: a training step of 64 ranks takes 11 s to simulate, with loads on links 3 s (docs/scale.md).
MOST_GLOO_RANKS = 64


def lane_width(scenario: Scenario) -> int:
    """How many collectives of one group a rank has under way at a time."""
    return _WORKERS[scenario.library]


def transport(scenario: Scenario, machine: Machine, classes: HostClasses | None = None) -> Transport:
    """The scenario's library at the scenario's fidelity; `classes`: host classes, if only representatives run."""
    flows = scenario.fidelity == "flows"
    if scenario.library == "nccl":
        return NcclPhases(machine, flows=flows, classes=classes)
    return GlooFlows(machine) if flows else _by_size(GlooFlows(machine), GlooLinks(machine))


def _by_size(few: Transport, many: Transport) -> Transport:
    """The one for groups of few ranks, the other for groups of more."""

    def play(meeting: Meeting, member: int, thread: Thread | None = None) -> None:
        (few if meeting.group.size <= MOST_GLOO_RANKS else many)(meeting, member, thread)

    return play

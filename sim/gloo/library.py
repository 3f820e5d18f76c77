"""gloo as the simulator's library: flows of messages, or loads on links for large groups at fidelity "links"."""

from __future__ import annotations

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Scenario
from sim.engine.machine import Machine
from sim.gloo.flows import GlooFlows
from sim.gloo.links import GlooLinks
from sim.gloo.reduction import in_rings
from sim.hosts.cores import Thread
from sim.hosts.threads import Hosts
from sim.library import Library, Transport
from sim.rank.rendezvous import Rendezvous

# torch's ProcessGroupGloo serves a group's collectives with two threads.
_LANES = 2

# "links" plays each message of collectives in groups of up to so many ranks. A ring of n ranks is 12 n * n messages and
# notices: a training step of 64 ranks takes 11 s to simulate, with loads on links 3 s (docs/scale.md).
MOST_RANKS = 64


def _transport(scenario: Scenario, machine: Machine, classes: HostClasses | None) -> Transport:
    cluster = scenario.cluster
    threads = None if cluster.tcp is None else Hosts(machine.clock, cluster, cluster.tcp, machine.draw)
    flows = GlooFlows(machine, threads)
    if scenario.fidelity == "flows":
        return Transport(flows, threads)
    links = GlooLinks(machine)

    def play(rendezvous: Rendezvous, member: int, thread: Thread | None) -> None:
        (flows if rendezvous.group.size <= MOST_RANKS else links)(rendezvous, member, thread)

    return Transport(play, threads)


LIBRARY = Library(_LANES, in_rings, _transport)

"""Dragonfly: every two groups of hosts have a link of their own."""

from __future__ import annotations

from scenarios.config.hardware import Network
from sim.engine.fabric import Fabric
from tests.small import cluster


def test_paths_between_groups_cross_the_link_of_that_pair() -> None:
    fabric = Fabric(
        cluster(6, 1, network=Network(kind="dragonfly", hosts_per_leaf=2, oversubscription=2, latency_ns=9))
    )
    assert [link.name for link in fabric.path(0, 1).links] == ["host0.nic0.out", "host1.nic0.in"]
    crossed = fabric.path(1, 4).links
    assert [link.name for link in crossed] == ["host1.nic0.out", "group0.to2.out", "host4.nic0.in"]
    nic, between, _ = crossed
    assert between.per_s == nic.per_s * 2 / (2 * 2), "two NICs, half of their rate, for two other groups"

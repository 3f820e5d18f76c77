"""NVLink domains of several hosts: paths, NCCL's choices and predictions, and domains simulated by representatives."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scenarios.config.faults import Fault, NicPart
from scenarios.config.hardware import Cluster, Inside, Link, Network, Nics
from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.load import load_profile
from scenarios.config.scenario import Scenario, TimedCollective
from scenarios.seam.trace import Recording
from scenarios.workloads.collective.program import CollectiveProgram
from sim.engine.fabric import Fabric
from sim.nccl.costs import GroupShape, costs_of
from sim.nccl.model.predictor import TunedCollective, choices
from sim.nccl.plan import channels
from sim.nccl.rings_and_trees import rail
from sim.nccl.tuning import topology
from sim.run import simulate
from tests.small import GPU, change, cluster, scenario

NVL72 = load_profile("gb200_nvl72")
SWITCH = Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=1000), hosts_per_domain=2)
LEAVES = Network(kind="leaf_spine", latency_ns=100, hosts_per_leaf=4, oversubscription=2.0)


def racks(hosts: int) -> Cluster:
    return dataclasses.replace(NVL72, hosts=hosts)


def predict(on: Cluster, op: Any, size_bytes: int, **changes: Any) -> Recording:
    call = TimedCollective(op=op, size_bytes=size_bytes)
    made: Scenario = scenario(on, program="collective", collective=call, library="nccl", payload="sizes", ranks="each")
    made = change(made, **changes)
    return simulate(made, CollectiveProgram(made))


def seconds(recording: Recording) -> float:
    return max(span.end_ns for span in recording.spans) / 1e9


def names(fabric: Fabric, *ends: int) -> list[str]:
    return [link.name for link in fabric.path(*ends).links]


def test_gpus_of_a_domain_reach_each_other_over_its_switch_and_others_by_nic() -> None:
    fabric = Fabric(cluster(4, 2, inside=SWITCH))
    assert names(fabric, 0, 3) == ["gpu0.out", "gpu3.in"]
    assert fabric.path(0, 3).latency_ns == 1000
    assert names(fabric, 0, 4) == ["host0.nic0.out", "host2.nic0.in"]
    assert names(fabric, 3, 4, 2) == ["gpu3.out", "gpu2.in", "host1.nic0.out", "host2.nic0.in"]


def test_tcp_between_hosts_of_a_domain_takes_their_nics() -> None:
    fabric = Fabric(cluster(4, 2, inside=SWITCH))
    assert [link.name for link in fabric.connection(0, 3).links] == ["host0.nic0.out", "host1.nic1.in"]
    assert [link.name for link in fabric.connection(0, 1).links] == ["gpu0.out", "gpu1.in"]


@pytest.mark.slow
def test_an_exchange_in_one_rack_goes_at_the_rate_of_nvlink() -> None:
    size_bytes = 1 << 30
    inside, across = (predict(racks(hosts), "all_to_all", size_bytes, fidelity="links") for hosts in (18, 36))
    rate = size_bytes * 71 / 72 / seconds(inside)
    assert 0.5 * 900e9 < rate < 900e9
    assert not any(link.bytes_carried for link in inside.links if link.link_class == "nic")
    # Half of what each GPU has goes to the other rack, over one NIC of 50 GB/s.
    assert seconds(across) == pytest.approx(size_bytes / 2 / (50e9 * 0.98), rel=0.1)


def test_a_reduction_in_one_rack_takes_no_nic_and_goes_by_the_switch() -> None:
    costs = costs_of(racks(18))
    assert (costs.hosts, costs.ranks_per_host, costs.gpus_per_tray) == (1, 72, 4)
    gib = TunedCollective(function="all_reduce", size_bytes=1 << 30)
    found = {choice.algorithm for choice in choices(topology(GroupShape(ranks=72, hosts=1, rails=1), costs), gib)}
    assert {"ring", "nvls"} <= found
    assert "nvls_tree" not in found
    both = {choice.algorithm for choice in choices(topology(GroupShape(ranks=144, hosts=2, rails=72), costs), gib)}
    assert "nvls_tree" in both
    assert "nvls" not in both
    recording = predict(racks(18), "all_reduce", 1 << 30, fidelity="links")
    assert not any(link.bytes_carried for link in recording.links if link.link_class == "nic")
    trays_by_nic = dataclasses.replace(
        racks(18),
        host=dataclasses.replace(NVL72.host, inside=dataclasses.replace(NVL72.host.inside, hosts_per_domain=1)),
    )
    assert seconds(recording) < seconds(predict(trays_by_nic, "all_reduce", 1 << 30, fidelity="links"))
    assert channels([0] * 72, costs) >= 32


def test_pxn_stays_on_the_senders_own_tray() -> None:
    costs = costs_of(racks(36))
    assert [rail(5, target, costs) for target in (1, 4, 5, 7, 70)] == [None, 4, None, 7, 6]


@pytest.mark.parametrize("op", ["all_to_all", "all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("network", [Network(kind="non_blocking"), LEAVES])
def test_a_folded_cluster_of_nvlink_domains_agrees_with_the_whole_one(op: str, network: Network) -> None:
    on = cluster(8, 2, inside=SWITCH, network=network, gpu=dataclasses.replace(GPU, kind="cuda"))
    every = predict(on, op, 8 << 20)
    folded = predict(on, op, 8 << 20, fidelity="links", ranks="alike")
    assert folded.info.host_counts == ((0, 4), (1, 4))
    assert seconds(folded) == pytest.approx(seconds(every), rel=0.01)
    for sort in ("nvlink", "nic", "uplink"):
        carried = [
            sum(link.bytes_carried * link.link_count for link in one.links if link.link_class == sort)
            for one in (every, folded)
        ]
        assert carried[1] == pytest.approx(carried[0], rel=1e-9)
    moved = [sum(row.bytes_carried * row.host_count for row in one.traffic) for one in (every, folded)]
    assert moved[1] == pytest.approx(moved[0], rel=1e-9)


def test_a_domain_with_a_slow_part_is_simulated_by_itself() -> None:
    on = dataclasses.replace(racks(72), faults=(Fault(NicPart(20, 1), 0.5),))
    alike = uniform_host_classes(scenario(on).with_run(ranks="alike"))
    assert alike is not None
    assert alike.representatives == tuple(range(36))
    assert alike.counts == (3,) * 18 + (1,) * 18
    assert alike.by_domain(18).representatives == (0, 1)
    assert alike.by_domain(18).class_of_host.tolist() == [0, 1, 0, 0]
    assert alike.class_of_host[18 * 2 + 5] == 5


def test_a_domain_is_no_larger_than_the_cluster() -> None:
    assert racks(6).hosts_per_domain == 6
    assert names(Fabric(racks(6)), 0, 23) == ["gpu0.out", "gpu23.in"]


def test_shared_nics_are_those_of_the_host() -> None:
    nics = Nics(per="gpu", count=2, link=Link(bytes_per_s=1e9, latency_ns=10))
    fabric = Fabric(cluster(4, 2, inside=SWITCH, nics=nics))
    assert names(fabric, 3, 7) == ["host1.nic1.out", "host3.nic1.in"]

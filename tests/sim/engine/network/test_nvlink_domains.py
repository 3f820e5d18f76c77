"""NVLink domains of several hosts and networks of rails: paths, NCCL's choices, and what their links carry."""

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
RAILS = Network(kind="rail_only", latency_ns=100)
CUDA = dataclasses.replace(GPU, kind="cuda", multiprocessors=100)


def racks(hosts: int) -> Cluster:
    return dataclasses.replace(NVL72, hosts=hosts)


def rails(hosts: int = 2, gpus: int = 4, **changes: Any) -> Cluster:
    return cluster(hosts, gpus, network=RAILS, gpu=CUDA, **changes)


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


def test_a_path_of_one_rail_crosses_one_switch() -> None:
    fabric = Fabric(rails())
    assert names(fabric, 1, 5) == ["host0.nic1.out", "host1.nic1.in"]
    assert fabric.path(1, 5).latency_ns == 2 * 2000 + 100


def test_a_path_to_another_rail_goes_to_its_nic_over_nvlink_first() -> None:
    fabric = Fabric(rails())
    assert names(fabric, 1, 6) == ["gpu1.out", "gpu2.in", "host0.nic2.out", "host1.nic2.in"]
    assert fabric.path(1, 6).latency_ns == 1000 + 2 * 2000 + 100
    assert names(fabric, 1, 6, 2) == names(fabric, 1, 6)
    assert [link.name for link in fabric.connection(1, 6).links] == names(fabric, 1, 6)
    assert names(fabric, 1, 2) == ["gpu1.out", "gpu2.in"]


def test_the_gpu_that_passes_bytes_on_is_of_the_senders_host_also_in_a_domain_of_several() -> None:
    fabric = Fabric(rails(4, 2, inside=SWITCH))
    assert names(fabric, 2, 3) == ["gpu2.out", "gpu3.in"]
    assert names(fabric, 2, 7) == ["gpu2.out", "gpu3.in", "host1.nic1.out", "host3.nic1.in"]


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize("op", ["all_to_all", "all_gather"])
def test_bytes_take_the_nics_of_the_rails_and_nvlink_to_them(op: str, library: Any) -> None:
    found = []
    for on in (rails(), cluster(2, 4, gpu=CUDA)):
        links = predict(on, op, 8 << 20, library=library).links
        sorts = ("nic", "nvlink")
        found.append({sort: sum(link.bytes_carried for link in links if link.link_class == sort) for sort in sorts})
    assert found[0]["nic"] == pytest.approx(found[1]["nic"], rel=0.01)
    # NCCL relays an exchange to the rail's GPU on one switch too (PXN).
    if op == "all_to_all" and library == "nccl":
        assert found[0]["nvlink"] == pytest.approx(found[1]["nvlink"])
    else:
        assert found[0]["nvlink"] > 1.01 * found[1]["nvlink"]

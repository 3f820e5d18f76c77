"""Rail-only networks: paths over the NIC of the target's number, and predictions beside those of one switch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scenarios.config.hardware import Cluster, Inside, Link, Network
from scenarios.config.scenario import TimedCollective
from scenarios.seam.trace import Recording
from scenarios.workloads.collective.program import CollectiveProgram
from sim.engine.fabric import Fabric
from sim.run import simulate
from tests.small import GPU, change, cluster, scenario

RAILS = Network(kind="rail_only", latency_ns=100)
DOMAINS = Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=1000), hosts_per_domain=2)
CUDA = dataclasses.replace(GPU, kind="cuda", multiprocessors=100)


def rails(hosts: int = 2, gpus: int = 4, **changes: Any) -> Cluster:
    return cluster(hosts, gpus, network=RAILS, gpu=CUDA, **changes)


def names(fabric: Fabric, *ends: int) -> list[str]:
    return [link.name for link in fabric.path(*ends).links]


def predict(on: Cluster, op: Any, **changes: Any) -> Recording:
    call = TimedCollective(op=op, size_bytes=8 << 20)
    made = scenario(on, program="collective", collective=call, library="nccl", payload="sizes", ranks="each")
    made = change(made, **changes)
    return simulate(made, CollectiveProgram(made))


def end_ns(recording: Recording) -> int:
    return max(span.end_ns for span in recording.spans)


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
    fabric = Fabric(rails(4, 2, inside=DOMAINS))
    assert names(fabric, 2, 3) == ["gpu2.out", "gpu3.in"]
    assert names(fabric, 2, 7) == ["gpu2.out", "gpu3.in", "host1.nic1.out", "host3.nic1.in"]


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize("op", ["all_to_all", "all_gather"])
def test_bytes_take_the_nics_of_the_rails_and_nvlink_to_them(op: str, library: Any) -> None:
    one_switch = cluster(2, 4, gpu=CUDA)
    found = [
        {
            sort: sum(link.bytes_carried for link in predict(on, op, library=library).links if link.link_class == sort)
            for sort in ("nic", "nvlink")
        }
        for on in (rails(), one_switch)
    ]
    assert found[0]["nic"] == pytest.approx(found[1]["nic"], rel=0.01)
    # NCCL relays an exchange to the rail's GPU on one switch too (PXN).
    if op == "all_to_all" and library == "nccl":
        assert found[0]["nvlink"] == pytest.approx(found[1]["nvlink"])
    else:
        assert found[0]["nvlink"] > 1.01 * found[1]["nvlink"]


@pytest.mark.parametrize("op", ["all_to_all", "all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("inside", [rails().host.inside, DOMAINS])
def test_a_folded_rail_only_cluster_agrees_with_the_whole_one(op: str, inside: Inside) -> None:
    on = rails(8, 2, inside=inside)
    every, folded = predict(on, op), predict(on, op, fidelity="links", ranks="alike")
    assert len(folded.info.host_counts) == inside.hosts_per_domain
    assert end_ns(folded) == pytest.approx(end_ns(every), rel=0.01)
    for sort in ("nvlink", "nic"):
        carried = [
            sum(link.bytes_carried * link.link_count for link in one.links if link.link_class == sort)
            for one in (every, folded)
        ]
        assert carried[1] == pytest.approx(carried[0], rel=1e-9)

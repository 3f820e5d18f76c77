"""Paths over a cluster's links: without a switch each pair of GPUs has its own, and others may pass bytes on."""

from __future__ import annotations

import pytest

from scenarios.config.hardware import Inside, Link, Network
from sim.engine.fabric import Fabric
from tests.small import cluster

# A chain 0 = 1 - 2, and 3 behind 2.
LINKS = ((0, 2, 0, 0), (2, 0, 1, 0), (0, 1, 0, 1), (0, 0, 1, 0))
MESH = Inside(kind="nvlink_mesh", link=Link(bytes_per_s=25e9, latency_ns=700), bridge_bytes_per_s=12e9, links=LINKS)


def cross(fabric: Fabric, *way: int) -> list[tuple[str, float]]:
    return [(link.name, link.per_s) for link in fabric.path(*way).links]


def test_a_pair_of_a_mesh_has_one_link_per_direction() -> None:
    fabric = Fabric(cluster(2, 4, inside=MESH))
    assert cross(fabric, 0, 1) == [("gpu0.nvlink1.out", 50e9)]
    assert cross(fabric, 1, 0) == [("gpu1.nvlink0.out", 50e9)]
    assert cross(fabric, 6, 5) == [("gpu6.nvlink1.out", 25e9)]
    assert fabric.path(6, 5).latency_ns == 700


def test_a_pair_without_links_shares_the_hosts_bridge_unless_a_third_passes_its_bytes_on() -> None:
    fabric = Fabric(cluster(2, 4, inside=MESH))
    bridge = [("host1.bridge.out", 12e9), ("host1.bridge.in", 12e9)]
    assert cross(fabric, 4, 6) == cross(fabric, 7, 4) == bridge
    assert cross(fabric, 4, 6, 5) == [("gpu4.nvlink1.out", 50e9), ("gpu5.nvlink2.out", 25e9)]
    assert fabric.path(4, 6, 5).latency_ns == 1400


def test_relayed_bytes_leave_by_the_relays_nic() -> None:
    fabric = Fabric(cluster(2, 4, inside=MESH))
    names = [name for name, _ in cross(fabric, 0, 5, 1)]
    assert names == ["gpu0.nvlink1.out", "host0.nic1.out", "host1.nic1.in"]
    switched = Fabric(cluster(2, 4))
    names = [name for name, _ in cross(switched, 0, 5, 1)]
    assert names == ["gpu0.out", "gpu1.in", "host0.nic1.out", "host1.nic1.in"]
    assert switched.path(0, 5, 1).latency_ns == switched.path(0, 5).latency_ns + 1000


@pytest.mark.parametrize("gpus", [2, 4])
def test_rows_contain_idle_links_of_a_mesh(gpus: int) -> None:
    rows = Fabric(cluster(2, gpus, inside=MESH)).rows()
    links = [(row.link, row.link_class) for row in rows if row.link_class == "nvlink"]
    joined = [(i, j) for i in range(gpus) for j in range(gpus) if LINKS[i][j]]
    assert links == [(f"gpu{host * gpus + i}.nvlink{j}.out", "nvlink") for host in range(2) for i, j in joined]
    assert [row.link for row in rows if row.link_class == "pcie"] == [
        f"host{host}.bridge.{way}" for host in range(2) for way in ("out", "in")
    ]
    assert len({row.link for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("inside", "per_leaf"),
    [(MESH, None), (None, 2), (Inside(kind="pcie", link=MESH.link, bridge_bytes_per_s=1e10), 2)],
)
def test_rows_of_some_hosts_are_their_links_and_their_leaves_uplinks(
    inside: Inside | None, per_leaf: int | None
) -> None:
    network = Network(kind="leaf_spine", hosts_per_leaf=per_leaf) if per_leaf else Network(kind="non_blocking")
    on = cluster(6, 4, network=network, **({} if inside is None else {"inside": inside}))
    few = Fabric(on, hosts=(0, 3))
    for way in ((0, 20), (20, 0)):  # host 5 is on another leaf
        few.path(*way)
    wanted = [row for row in Fabric(on).rows() if row.link_class == "uplink" or row.host in (0, 3)]
    assert sorted(few.rows(), key=lambda row: row.link) == sorted(wanted, key=lambda row: row.link)
    assert {row.link for row in few.rows() if row.link_class == "uplink"} == (
        {f"leaf{leaf}.uplinks.{way}" for leaf in range(3) for way in ("out", "in")} if per_leaf else set()
    )


def test_uplinks_of_leaves_that_nothing_reaches_are_no_rows_of_some_hosts() -> None:
    network = Network(kind="leaf_spine", hosts_per_leaf=2)
    rows = Fabric(cluster(6, 1, network=network), hosts=(2,)).rows()
    assert {row.link for row in rows} == {
        f"{link}.{way}" for link in ("host2.nic0", "gpu2", "leaf1.uplinks") for way in ("out", "in")
    }
    assert {row.host for row in rows} == {2}


def test_a_gpus_capacities_are_made_once_when_asked_for() -> None:
    fabric = Fabric(cluster(2, 4))
    assert not fabric.arithmetic
    assert fabric.arithmetic[5] is fabric.arithmetic[5]
    assert (fabric.arithmetic[5].name, fabric.arithmetic[5].per_s) == ("gpu5.arithmetic", 1.0)
    assert (fabric.memory[5].name, fabric.memory[5].per_s) == ("gpu5.memory", 1e12)
    assert list(fabric.memory) == [5]

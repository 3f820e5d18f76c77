"""Activities in simulated time: rooflines, sharing between kernels, the path of bytes."""

from __future__ import annotations

import dataclasses

import pytest

from scenarios.config.hardware import Cluster, Inside, Link, Network, Nics
from scenarios.seam.kernel import Kernel
from sim.engine.fabric import Fabric
from sim.engine.machine import Machine
from tests.small import cluster


def ends(machine: Machine, *signals: object) -> list[int]:
    """When each signal fires, in ns."""
    times: dict[int, int] = {}
    for index, signal in enumerate(signals):
        signal.then(lambda index=index: times.__setitem__(index, machine.clock.now_ns))  # type: ignore[attr-defined]
    machine.clock.run()
    return [times[index] for index in range(len(signals))]


def test_a_kernel_alone_takes_the_slower_of_arithmetic_and_memory() -> None:
    for flops, size_bytes, expected_ns in ((1e9, 1e6, 100_000), (1e8, 1e8, 100_000), (0, 1e6, 1_000), (0, 0, 0)):
        machine = Machine(cluster(1, 1))
        kernel = Kernel(kind="test", flops=flops, bytes_read=size_bytes)
        assert ends(machine, machine.kernel(0, kernel)) == [expected_ns]


def test_a_draw_varies_kernel_times_by_the_profiles_spread() -> None:
    varying = cluster(1, 1, gpu=dataclasses.replace(cluster(1, 1).host.gpu, launch_ns=10_000, spread=(0.5, 1.0, 2.0)))
    for flops, measured_ns, mean_ns in ((1e9, None, 110_000), (1e10, 100_000, 100_000)):
        kernel = Kernel(kind="test", flops=flops)
        found = [drawn_ns(varying, kernel, draw, measured_ns) for draw in (None, *map(str, range(200)))]
        assert found[0] == mean_ns
        assert mean_ns / 2 <= min(found) < 0.6 * mean_ns
        assert 1.81 * mean_ns < max(found) <= 2 * mean_ns


def test_a_kernel_reports_its_wait_for_launches() -> None:
    """First for the first one, and when it is through for the last one, if that comes later."""
    on = cluster(1, 1, gpu=dataclasses.replace(cluster(1, 1).host.gpu, launch_ns=10_000))
    kernel = Kernel(kind="test", flops=1e9, launches=3)  # 100 us by itself
    for (first_ns, last_ns), end_ns, waits in (
        ((40_000, 60_000), 140_000, [40_000, 0]),
        ((40_000, 200_000), 200_000, [40_000, 60_000]),
        ((-9_000, 0), 100_000, [0]),
    ):
        told: list[int] = []
        machine = Machine(on)
        launched = (first_ns, last_ns)
        signal = machine.kernel(0, kernel, launched_ns=launched, launching=told.append)
        assert (ends(machine, signal), told) == ([end_ns], waits)
    told = []
    machine = Machine(on)
    assert ends(machine, machine.kernel(0, kernel, launching=told.append)) == [130_000]
    assert told == [30_000]  # nobody launches ahead


def drawn_ns(on: Cluster, kernel: Kernel, draw: str | None, measured_ns: int | None) -> int:
    machine = Machine(on, draw)
    (end_ns,) = ends(machine, machine.kernel(0, kernel, measured_ns=measured_ns))
    return end_ns


def test_a_short_kernel_concurrent_with_a_long_one_takes_twice_its_time() -> None:
    """Equal shares of the GPU, not equal progress: 1 ms beside 10 ms ends at 2 ms, and the long one at 11 ms."""
    machine = Machine(cluster(1, 1))
    short, long = (machine.kernel(0, Kernel(kind="test", flops=flops)) for flops in (1e10, 1e11))
    assert ends(machine, short, long) == [2_000_000, 11_000_000]


def test_kernels_bound_by_different_things_do_not_slow_each_other() -> None:
    machine = Machine(cluster(1, 1))
    arithmetic, memory = Kernel(kind="test", flops=1e10), Kernel(kind="test", bytes_read=1e9)
    assert ends(machine, machine.kernel(0, arithmetic), machine.kernel(0, memory)) == [1_000_000, 1_000_000]


def test_two_flows_share_a_nic_and_one_alone_gets_it_whole() -> None:
    machine = Machine(cluster(3, 1))
    path = machine.fabric.path
    first, second = machine.carry(path(0, 2), 1.25e6), machine.carry(path(1, 2), 2.5e6)
    assert ends(machine, first, second) == [2_000_000, 3_000_000]


def test_a_message_of_one_packet_takes_no_share() -> None:
    machine = Machine(cluster(2, 1))
    path = machine.fabric.path(0, 1)
    large, small = machine.carry(path, 1.25e6), machine.carry(path, 125)
    assert ends(machine, large, small) == [1_000_000, 100]


@pytest.mark.parametrize(
    ("source", "target", "links", "latency_ns"),
    [
        (0, 0, [], 0),
        (0, 1, ["gpu0.out", "gpu1.in"], 1000),
        (0, 2, ["host0.nic0.out", "host1.nic0.in"], 4100),
        (1, 6, ["host0.nic1.out", "leaf0.uplinks.out", "leaf1.uplinks.in", "host3.nic0.in"], 4300),
    ],
)
def test_a_path_consists_of_the_links_between_its_ends(
    source: int, target: int, links: list[str], latency_ns: int
) -> None:
    network = Network(kind="leaf_spine", latency_ns=100, hosts_per_leaf=2, oversubscription=4.0)
    path = Fabric(cluster(4, 2, network=network)).path(source, target)
    assert ([link.name for link in path.links], path.latency_ns) == (links, latency_ns)


def test_uplinks_are_the_leafs_nics_over_the_oversubscription() -> None:
    network = Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=4.0)
    path = Fabric(cluster(3, 2, network=network)).path(0, 4)
    assert [link.per_s for link in path.links] == [1.25e9, 1.25e9, 0.625e9, 1.25e9]


def test_gpus_share_a_hosts_nics_and_its_bridge() -> None:
    inside = Inside(kind="pcie", link=Link(bytes_per_s=16e9, latency_ns=500), bridge_bytes_per_s=24e9)
    nics = Nics(per="host", count=2, link=Link(bytes_per_s=1e9, latency_ns=1000))
    fabric = Fabric(cluster(2, 4, inside=inside, nics=nics))
    assert [link.name for link in fabric.path(3, 4).links] == [
        "gpu3.out",
        "host0.bridge.out",
        "host0.nic1.out",
        "host1.nic0.in",
        "gpu4.in",
        "host1.bridge.in",
    ]
    assert [link.name for link in fabric.path(0, 1).links] == [
        "gpu0.out",
        "host0.bridge.out",
        "host0.bridge.in",
        "gpu1.in",
    ]

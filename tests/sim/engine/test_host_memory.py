"""Kernels that read and write their host's memory: over which links, and whom they share them with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from scenarios.config.hardware import Inside, Link, Nics
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel, together
from sim.engine.machine import Machine
from tests.small import CORE, cluster

NVLINK = Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=0), host_bytes_per_s=1e10)
SWITCHED = dataclasses.replace(NVLINK, gpus_per_host_link=2)
PCIE = Inside(kind="pcie", link=Link(bytes_per_s=1e10, latency_ns=0), bridge_bytes_per_s=1e10)
NICS = Nics(per="gpu", count=4, link=Link(bytes_per_s=1e10, latency_ns=0))
READ = Kernel(kind="embedding_lookup", host_read=1e7, launches=0)  # 1 ms
MS = 1_000_000


def ends(
    kernels: dict[int, Kernel], inside: Inside, carried: Sequence[tuple[int, int]] = (), **changes: Any
) -> list[int]:
    """When each kernel ends that begins now on its rank's GPU, and 10 MB from rank to rank; all are in one order."""
    machine = Machine(cluster(2, 4, inside=inside, nics=NICS, **changes), has_host_lanes=True)
    found: list[int] = []
    begun = [machine.kernel(rank, kernel) for rank, kernel in kernels.items()]
    begun += [machine.carry(machine.fabric.path(*pair), 1e7) for pair in carried]
    for signal in begun:
        signal.then(lambda: found.append(machine.clock.now_ns))
    machine.clock.run()
    assert len(found) == len(begun)
    return found


def test_a_kernel_takes_the_longer_of_its_host_path_and_its_gpu() -> None:
    assert ends({0: READ}, NVLINK) == [MS]
    both = dataclasses.replace(READ, host_written=1e7)  # one direction each
    assert ends({0: both}, NVLINK) == [MS]
    assert ends({0: dataclasses.replace(READ, bytes_read=5e8)}, NVLINK) == [MS]
    assert ends({0: dataclasses.replace(READ, bytes_read=2e9)}, NVLINK) == [2 * MS]
    assert ends({0: READ.times(3)}, NVLINK) == ends({0: together([READ, READ, READ])}, NVLINK) == [3 * MS]


@pytest.mark.parametrize(
    ("inside", "together_ms"), [(NVLINK, 1), (SWITCHED, 2), (PCIE, 2)], ids=["own lanes", "switch", "bridge"]
)
def test_two_gpus_share_common_lanes_to_host_memory(inside: Inside, together_ms: int) -> None:
    assert ends({0: READ, 1: READ}, inside) == [together_ms * MS] * 2


def test_gpus_behind_other_switches_and_on_other_hosts_do_not() -> None:
    assert ends({0: READ, 2: READ, 4: READ}, SWITCHED) == [MS] * 3
    assert ends({0: READ, 4: READ}, PCIE) == [MS] * 2
    assert ends({0: READ, 1: Kernel(kind="embedding_update", host_written=1e7, launches=0)}, PCIE) == [MS] * 2


@pytest.mark.parametrize("inside", [NVLINK, SWITCHED, PCIE], ids=["own lanes", "switch", "bridge"])
def test_copies_and_nic_traffic_share_lanes_fairly(inside: Inside) -> None:
    assert ends({0: READ}, inside, [(4, 0)]) == [2 * MS] * 2
    assert ends({0: READ}, inside, [(0, 4)]) == [MS] * 2  # the other direction
    assert ends({0: READ}, inside, [(4, 0), (5, 0)]) == [3 * MS] * 3


def test_nvlink_traffic_does_not_slow_host_copies() -> None:
    assert ends({0: READ}, NVLINK, [(1, 0)]) == [MS // 10, MS]
    assert ends({1: READ}, SWITCHED, [(4, 0)]) == [MS] * 2  # a NIC behind the switch leaves the way up free


def test_lanes_are_no_links_where_nobody_uses_host_memory() -> None:
    on = cluster(2, 4, inside=NVLINK, nics=NICS)
    names = {flag: {row.link for row in Machine(on, has_host_lanes=flag).fabric.rows()} for flag in (False, True)}
    assert names[True] - names[False] == {f"gpu{rank}.host.{way}" for rank in range(8) for way in ("in", "out")}


@pytest.mark.parametrize("has_host_lanes", [False, True])
@pytest.mark.parametrize(("lanes_gb_per_s", "payload_share", "took_ms"), [(5, 1.0, 2), (8, 0.5, 2), (10, 1.0, 1)])
def test_lanes_narrower_than_the_nic_limit_it_with_and_without_copies(
    lanes_gb_per_s: float, payload_share: float, took_ms: int, has_host_lanes: bool
) -> None:
    """10 MB cross NICs of 10 GB/s, of which `payload_share` is payload, and a GPU's lanes on either side."""
    inside = dataclasses.replace(NVLINK, host_bytes_per_s=lanes_gb_per_s * 1e9)
    on = dataclasses.replace(cluster(2, 4, inside=inside, nics=NICS), payload_share=payload_share)
    machine = Machine(on, has_host_lanes=has_host_lanes)
    found: list[int] = []
    machine.carry(machine.fabric.path(0, 4), 1e7).then(lambda: found.append(machine.clock.now_ns))
    machine.clock.run()
    assert found == [took_ms * MS]
    listed = any(".host." in row.link for row in machine.fabric.rows())
    assert listed == (has_host_lanes or lanes_gb_per_s == 5)


def test_a_cluster_that_does_not_say_how_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"^cluster.inside.host_rate: missing; GPU 0 has work in its host's memory$"):
        ends({0: READ}, dataclasses.replace(NVLINK, host_bytes_per_s=None))


def test_a_cpu_has_one_memory() -> None:
    """Bytes of its host's memory are bytes of its own."""
    moved = dataclasses.replace(READ, host_read=0.0, bytes_read=1e7)
    assert ends({0: READ}, PCIE, gpu=CORE) == ends({0: moved}, PCIE, gpu=CORE) == [MS]


def test_measured_times_stretch_copies_too() -> None:
    machine = Machine(cluster(1, 1, inside=NVLINK))
    found: list[int] = []
    machine.kernel(0, READ, measured_ns=3 * MS).then(lambda: found.append(machine.clock.now_ns))
    machine.clock.run()
    assert found == [3 * MS]
    assert machine.fabric.to_host(0, "in").links[0].used == 3e7

"""Parts that a fault makes slower: each by as much as it says, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart
from scenarios.config.hardware import Cluster, Network, Nics
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.engine.fabric import Fabric
from sim.engine.machine import Machine
from sim.engine.slow_start import slow_start
from sim.hosts.cores import HostCores
from sim.run import simulate
from tests.sim.engine.test_machine import ends
from tests.small import CORE, GPU, TCP, Play, cluster, scenario

ARITHMETIC = Kernel(kind="test", flops=1e10)  # 1 ms on the tests' GPU
MEMORY = Kernel(kind="test", bytes_read=1e9)  # 1 ms


def slow_gpu(speed: float = 0.25, **changes: Any) -> Machine:
    """Two GPUs, of which rank 1's is slow."""
    return Machine(cluster(1, 2, faults=(Fault(GpuPart(0, 1), speed),), **changes))


def both(machine: Machine, kernel: Kernel, **options: Any) -> list[int]:
    """The times of a kernel on the whole GPU and on the slow one."""
    return ends(machine, *(machine.kernel(rank, kernel, **options) for rank in range(2)))


@pytest.mark.parametrize("kernel", [ARITHMETIC, MEMORY, dataclasses.replace(ARITHMETIC, bytes_read=2e8)])
def test_a_slow_gpus_kernel_takes_longer_by_its_speed(kernel: Kernel) -> None:
    assert both(slow_gpu(), kernel) == [1_000_000, 4_000_000]


@pytest.mark.parametrize("kernel", [ARITHMETIC, MEMORY])
def test_a_slow_gpu_also_shares_with_nccls_channels(kernel: Kernel) -> None:
    machine = slow_gpu()
    for rank in range(2):
        machine.occupy(machine.fabric.arithmetic[rank], 0.5)
        machine.occupy(machine.fabric.memory[rank], 0.5e12)
    assert both(machine, kernel) == [2_000_000, 8_000_000]


def test_a_ramp_is_the_gpus_and_a_launch_the_hosts() -> None:
    gpu = dataclasses.replace(GPU, launch_ns=10_000, ramp_ns=2_000)
    assert both(slow_gpu(gpu=gpu), ARITHMETIC) == [1_012_000, 4_018_000]
    core = dataclasses.replace(CORE, launch_ns=10_000)
    assert both(slow_gpu(gpu=core), Kernel(kind="test", flops=5e7)) == [1_010_000, 4_010_000]


def test_a_measured_time_holds_for_a_gpu_at_nominal_speed() -> None:
    assert both(slow_gpu(), MEMORY, measured_ns=3_000_000) == [3_000_000, 12_000_000]


def test_a_slow_core_is_slow_in_its_thread() -> None:
    machine = slow_gpu(gpu=CORE, tcp=TCP)
    hosts = HostCores(machine.clock, machine.fabric.cluster, TCP, None)
    cores = [hosts.program(rank, "main").run for rank in range(2)]
    kernel = Kernel(kind="test", flops=5e7)
    signals = [machine.kernel(rank, kernel, core) for rank, core in enumerate(cores)]
    assert ends(machine, *signals) == [1_000_000, 4_000_000]


def per_s(fabric: Fabric) -> dict[str, float]:
    return {row.link: row.bytes_per_s for row in fabric.rows()}


def slower(on: Cluster, faults: tuple[Fault, ...]) -> dict[str, float]:
    """The links that are slower than without a fault, and the share of their rate that they have."""
    whole, found = per_s(Fabric(on)), per_s(Fabric(dataclasses.replace(on, faults=faults)))
    return {link: rate / whole[link] for link, rate in found.items() if rate != whole[link]}


def test_a_slow_nic_is_slow_in_both_directions_and_no_other_is() -> None:
    assert slower(cluster(3, 2), (Fault(NicPart(1, 0), 0.25),)) == {"host1.nic0.out": 0.25, "host1.nic0.in": 0.25}


def test_a_slow_leaf_has_slow_uplinks_and_whole_nics() -> None:
    network = Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=2.0)
    found = slower(cluster(5, 2, network=network), (Fault(LeafPart(2), 0.5),))
    assert found == {"leaf2.uplinks.out": 0.5, "leaf2.uplinks.in": 0.5}


def test_a_slow_nic_slows_every_gpu_that_it_serves() -> None:
    nics = Nics(per="host", count=2, link=cluster().host.nics.link, initial_window_bytes=1000)
    fabric = Fabric(cluster(2, 4, nics=nics, faults=(Fault(NicPart(0, 1), 0.5),)))
    assert [fabric.path(rank, 4).bytes_per_ns for rank in range(4)] == [1.25, 0.625, 1.25, 0.625]
    assert [fabric.path(4, rank).bytes_per_ns for rank in range(4)] == [1.25, 0.625, 1.25, 0.625]
    whole, slow = (slow_start(fabric, rank, 4) for rank in range(2))
    assert whole is not None
    assert slow is not None
    assert 0 < slow.lost_ns(1e6, 0) < whole.lost_ns(1e6, 0)  # a window is wide enough sooner


def reduce(faults: tuple[Fault, ...], fidelity: str, library: str) -> Recording:
    """All-reduces of 64 MiB on four hosts."""

    async def play(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(1 << 24, device="meta"))

    on = cluster(4, 1, faults=faults)
    return simulate(scenario(on, library=library, fidelity=fidelity, payload="sizes"), Play(play))


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_a_ring_takes_the_time_of_its_slow_nic_and_nccl_does_not_know(fidelity: str, library: str) -> None:
    whole, slow = (reduce(slow, fidelity, library).spans for slow in ((), (Fault(NicPart(2, 0), 0.25),)))
    assert slow[0].end_ns == pytest.approx(4 * whole[0].end_ns, rel=0.02)
    assert [span.formula_ns for span in slow] == [span.formula_ns for span in whole]
    if library == "nccl":
        assert slow[0].formula_ns > 0

"""Faults of the whole run, or of a part of it: what lies within is slow by its speed, and nothing else is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.faults import NOMINAL, Fault, GpuPart, LeafPart, NicPart, Pace, Part
from scenarios.config.hardware import Cluster, Network, Nics
from scenarios.do_nothing import do_nothing
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.clock import Clock
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import MOST_SINGLE, Bundle
from sim.engine.machine import Machine
from sim.engine.slow_start import slow_start
from sim.hosts.cores import Cores, HostCores, Thread, Wakes
from sim.run import simulate
from tests.sim.engine.test_machine import ends
from tests.sim.nccl.folded.test_folded import World, exchange, play
from tests.small import CORE, GPU, TCP, Play, cluster, scenario

MS = 1_000_000
TEN_MS = Kernel(kind="test", flops=1e11)  # on the tests' GPU
ARITHMETIC = Kernel(kind="test", flops=1e10)  # 1 ms
MEMORY = Kernel(kind="test", bytes_read=1e9)  # 1 ms
GPU_1 = GpuPart(0, 1)

# When a fault of half the speed begins and ends, and when 10 ms of work end that begin at 0.
WINDOWS = [
    ((4 * MS, None), 16 * MS),
    ((4 * MS, 8 * MS), 12 * MS),
    ((0, 6 * MS), 13 * MS),
    ((0, None), 20 * MS),
    ((0, 10**12), 20 * MS),
    ((10 * MS, None), 10 * MS),
    ((11 * MS, 10**12), 10 * MS),
]
windows = pytest.mark.parametrize(("window", "end_ns"), WINDOWS)


def machine(part: Part, *times: tuple[int, int | None], speed: float = 0.5, **changes: Any) -> Machine:
    """Two hosts of two GPUs, of which one part is slow for a while."""
    return Machine(cluster(2, 2, faults=tuple(Fault(part, speed, *each) for each in times), **changes))


@windows
@pytest.mark.parametrize("kernel", [TEN_MS, Kernel(kind="test", bytes_read=1e10)])
def test_a_kernel_is_slow_for_the_part_that_lies_within(
    kernel: Kernel, window: tuple[int, int | None], end_ns: int
) -> None:
    made = machine(GPU_1, window)
    assert ends(made, made.kernel(0, kernel), made.kernel(1, kernel)) == [10 * MS, end_ns]


@windows
def test_a_kernel_on_a_core_is_too(window: tuple[int, int | None], end_ns: int) -> None:
    made = machine(GPU_1, window, gpu=CORE, tcp=TCP)
    hosts = HostCores(made.clock, made.fabric.cluster, TCP, None)
    kernel = Kernel(kind="test", flops=5e8)
    signals = [made.kernel(rank, kernel, hosts.program(rank, "main").run) for rank in range(2)]
    assert ends(made, *signals) == [10 * MS, end_ns]


@windows
def test_a_flow_is_too(window: tuple[int, int | None], end_ns: int) -> None:
    made = machine(NicPart(1, 0), window)
    slow, other = made.fabric.path(0, 2), made.fabric.path(1, 3)
    assert ends(made, made.carry(other, 1.25e7), made.carry(slow, 1.25e7)) == [10 * MS, end_ns]


def test_several_faults_of_a_part_add_up() -> None:
    made = machine(GPU_1, (1 * MS, 3 * MS), (5 * MS, 9 * MS))
    assert ends(made, made.kernel(1, TEN_MS)) == [13 * MS]


def test_a_ramp_is_slow_and_a_launch_is_not() -> None:
    gpu = dataclasses.replace(GPU, launch_ns=3 * MS, ramp_ns=2 * MS)
    for begin_ns, end_ns in ((0, 27 * MS), (4 * MS, 26 * MS), (5 * MS, 25 * MS)):
        made = machine(GPU_1, (begin_ns, None), gpu=gpu)
        assert ends(made, made.kernel(1, TEN_MS)) == [end_ns]
        made = machine(GPU_1, (begin_ns, None), gpu=gpu)
        launched = made.kernel(1, TEN_MS, launched_ns=(3 * MS, 3 * MS))
        assert ends(made, launched) == [end_ns]
    core = dataclasses.replace(CORE, launch_ns=3 * MS)
    made = machine(GPU_1, (5 * MS, None), gpu=core, tcp=TCP)
    thread = HostCores(made.clock, made.fabric.cluster, TCP, None).program(1, "main")
    assert ends(made, made.kernel(1, Kernel(kind="test", flops=5e8), thread.run)) == [21 * MS]


def test_kernels_that_share_a_gpu_share_it_evenly_across_a_change() -> None:
    """The second begins when the GPU is slow already, and has the same work."""
    made = machine(GPU_1, (5 * MS, None))
    late = made.sleep(6 * MS)
    found: list[int] = []
    late.then(lambda: made.kernel(1, TEN_MS).then(lambda: found.append(made.clock.now_ns)))
    first = ends(made, made.kernel(1, TEN_MS))
    # At 6 ms, 4.5 ms of the first are left; each has a quarter of the GPU until then.
    assert first == [24 * MS]
    assert found == [35 * MS]


def test_flows_in_arrays_are_shared_anew() -> None:
    """Each of many flows crosses both NICs: 10 ms together, the last half at half the rate."""
    made = machine(NicPart(1, 0), (5 * MS, None))
    count, path = MOST_SINGLE + 1, made.fabric.path(0, 2)
    crossed = np.tile(np.arange(len(path.links), dtype=np.int32), (count, 1))
    over: list[int] = []
    bundle = Bundle(path.links, crossed, np.full(count, 1.25e7 / count), lambda _: over.append(made.clock.now_ns))
    made.begin_all(bundle)
    made.clock.run()
    assert over == [15 * MS]


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("fidelity", ["flows", "links"])
@pytest.mark.parametrize("part", [NicPart(1, 0), LeafPart(1), GpuPart(1, 0)])
def test_a_fault_of_the_whole_run_is_one_without_times(fidelity: str, library: str, part: Part) -> None:
    spans = [step(part, window, library, fidelity).spans for window in ((0, None), (0, 10**13), (10**13, None))]
    assert spans[0] == spans[1]
    assert end_of(spans[2]) < end_of(spans[0])
    assert spans[2] == step(part, None, library, fidelity).spans


def step(part: Part, window: tuple[int, int | None] | None, library: str, fidelity: str, **changes: Any) -> Recording:
    """Computation, then an all-reduce and an exchange of four hosts."""

    async def body(rank: Rank) -> None:
        await rank.compute(TEN_MS, int, label="x")
        await rank.all_reduce(torch.empty(1 << 20, device="meta"))
        sizes = [1 << 20] * 4
        await rank.all_to_all_single(
            torch.empty(4 << 20, device="meta"), torch.empty(4 << 20, device="meta"), sizes, sizes
        )

    network = Network(kind="leaf_spine", hosts_per_leaf=1)
    faults = () if window is None else (Fault(part, 0.25, *window),)
    on = cluster(4, 1, faults=faults, network=network, **changes)
    return simulate(scenario(on, library=library, fidelity=fidelity, payload="sizes"), Play(body))


def end_of(spans: Sequence[Any]) -> int:
    return max(span.end_ns for span in spans)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_a_ring_is_slow_while_its_nic_is(library: str) -> None:
    """A quarter of the rate for the last quarter of the time: a transfer of that time takes four times as long."""

    async def body(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(1 << 24, device="meta"))

    def took_ns(*times: int) -> int:
        faults = (Fault(NicPart(2, 0), 0.25, *times),) if times else ()
        made = scenario(cluster(4, 1, faults=faults), library=library, fidelity="links", payload="sizes")
        return end_of(simulate(made, Play(body)).spans)

    whole = took_ns()
    assert took_ns(whole * 3 // 4) == pytest.approx(whole * 7 / 4, rel=0.01)
    assert took_ns(0, whole) == pytest.approx(whole * 7 / 4, rel=0.01)  # a quarter is done by then


def test_tcp_is_slow_while_its_nic_is() -> None:
    """Segments, with queues in front of links: 50 MB at 1.25 GB/s, from 20 ms on at half the rate."""

    async def body(rank: Rank) -> None:
        tensor = torch.empty(50_000_000, dtype=torch.int8, device="meta")
        await (rank.send(tensor, 1) if rank.rank == 0 else rank.recv(tensor, 0))

    def took_ns(*faults: Fault) -> int:
        tcp = dataclasses.replace(TCP, send_bytes_per_s=1e12, receive_bytes_per_s=1e12)
        on = cluster(2, 1, gpu=CORE, tcp=tcp, faults=faults)
        return end_of(simulate(scenario(on, payload="sizes", fidelity="flows"), Play(body)).spans)

    whole = took_ns()
    assert whole == pytest.approx(40 * MS, rel=0.02)
    assert took_ns(Fault(NicPart(0, 0), 0.5, 20 * MS)) == pytest.approx(whole + 20 * MS, rel=0.001)
    assert took_ns(Fault(NicPart(0, 0), 0.5, 20 * MS, 30 * MS)) == pytest.approx(whole + 5 * MS, rel=0.001)


@pytest.mark.parametrize("weights", [((4, 4),), ((1, 7),)])
def test_a_folded_exchange_is_slow_while_a_hosts_nic_is(weights: tuple[tuple[int, ...], ...]) -> None:
    """Of 16 ranks that send alike, or of which each second one sends more than its NIC may leave idle."""
    on = cluster(8, 2)

    def took_ns(*times: int) -> list[int]:
        faults = (Fault(NicPart(5, 1), 0.25, *times),) if times else ()
        world = World(dataclasses.replace(on, faults=faults), (0,) * 8, weights)
        recordings = [play(world, exchange(world, "sent", 50_000), folded=folded) for folded in (False, True)]
        return [end_of(one.spans) for one in recordings]

    whole, _ = took_ns()
    for times in ((0, whole // 2), (whole // 2, whole * 2), (whole // 4, whole // 2), (whole // 3,)):
        every, folded = took_ns(*times)
        assert every > 1.1 * whole
        assert folded == pytest.approx(every, rel=0.01)


def test_work_that_is_interrupted_goes_on_at_the_cores_pace() -> None:
    """One core, two threads of 10 ms: a slice each; one of them is slow from 12 ms on."""
    clock, times = Clock(), dict[str, int]()
    cores = Cores(clock, 1)
    pace = Pace.of([Fault(GPU_1, 0.5, 12 * MS)])
    for name, of in (("nominal", NOMINAL), ("slow", pace)):
        thread = Thread(cores, Wakes(clock, TCP, None), sleeps=False)
        thread.run(10 * MS, lambda name=name: times.__setitem__(name, clock.now_ns), of)  # type: ignore[misc]
    clock.run()
    # Slices of 4 ms: by 12 ms, 8 and 4; the slow one has 2 ms of its 4 done by 16, the other ends at 18.
    assert times == {"nominal": 18 * MS, "slow": 26 * MS}


def test_a_link_has_its_mean_rate_over_the_run() -> None:
    made = machine(NicPart(1, 0), (4 * MS, 8 * MS))
    ends(made, made.kernel(0, TEN_MS))
    rates = {row.link: row.bytes_per_s for row in made.fabric.rows(made.clock.now_ns)}
    assert rates["host1.nic0.in"] == pytest.approx(0.8 * rates["host0.nic0.in"])


def test_a_run_ends_with_its_work_whatever_comes_later() -> None:
    made = machine(GPU_1, (20 * MS, 30 * MS))
    made.kernel(1, TEN_MS)
    made.clock.run()
    assert made.clock.now_ns == 10 * MS


def test_changes_of_an_instant_come_before_all_else_in_it() -> None:
    clock, seen = Clock(), list[str]()
    clock.call_in(5, lambda: seen.append("event"))
    clock.call_before(5, lambda: seen.append("change"))
    clock.call_before(5, lambda: seen.append("other change"))
    clock.call_before(6, do_nothing)
    clock.run()
    assert (seen, clock.now_ns) == (["change", "other change", "event"], 5)


times = st.integers(0, 1000)
faults = st.lists(
    st.builds(
        lambda begin, lasts, speed: Fault(GPU_1, speed, begin, None if lasts is None else begin + lasts),
        *(times, st.none() | st.integers(1, 1000), st.floats(0.01, 1)),
    ),
    max_size=4,
)


@given(faults, times, st.floats(0, 1e4))
def test_work_takes_the_time_in_which_it_is_done(given_faults: list[Fault], from_ns: int, work_ns: float) -> None:
    pace = Pace.of(given_faults)
    took_ns = pace.takes_ns(work_ns, from_ns)
    assert pace.work_ns(from_ns, from_ns + took_ns) == pytest.approx(work_ns, abs=1e-6)
    assert all(one != other for one, other in zip(pace.speeds, pace.speeds[1:], strict=False))
    for t_ns in {from_ns, *pace.times_ns, *(one.begin_ns for one in given_faults)}:
        expected = np.prod([one.speed for one in given_faults if one.begin_ns <= t_ns < (one.end_ns or np.inf)])
        assert pace.speed_at(t_ns) == pytest.approx(expected)
    assert pace.mean(2000) == pytest.approx(pace.work_ns(0, 2000) / 2000)


@pytest.mark.parametrize("kernel", [ARITHMETIC, MEMORY])
def test_a_slow_gpu_also_shares_with_nccls_channels(kernel: Kernel) -> None:
    made = machine(GPU_1, (0, None), speed=0.25)
    for rank in range(2):
        made.occupy(made.fabric.arithmetic[rank], 0.5)
        made.occupy(made.fabric.memory[rank], 0.5e12)
    assert ends(made, made.kernel(0, kernel), made.kernel(1, kernel)) == [2 * MS, 8 * MS]


def test_a_measured_time_holds_for_a_gpu_at_nominal_speed() -> None:
    made = machine(GPU_1, (0, None), speed=0.25)
    assert ends(made, *(made.kernel(rank, MEMORY, measured_ns=3 * MS) for rank in range(2))) == [3 * MS, 12 * MS]


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


def reduce_all(faults: tuple[Fault, ...], fidelity: str, library: str) -> Recording:
    """All-reduces of 64 MiB on four hosts."""

    async def play(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(1 << 24, device="meta"))

    on = cluster(4, 1, faults=faults)
    return simulate(scenario(on, library=library, fidelity=fidelity, payload="sizes"), Play(play))


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_a_ring_takes_the_time_of_its_slow_nic_and_nccl_does_not_know(fidelity: str, library: str) -> None:
    whole, slow = (reduce_all(slow, fidelity, library).spans for slow in ((), (Fault(NicPart(2, 0), 0.25),)))
    assert slow[0].end_ns == pytest.approx(4 * whole[0].end_ns, rel=0.02)
    assert [span.formula_ns for span in slow] == [span.formula_ns for span in whole]
    if library == "nccl":
        assert slow[0].formula_ns > 0

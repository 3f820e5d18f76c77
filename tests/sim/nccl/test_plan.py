from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.seam.calls import Call
from scenarios.seam.traits import TRAITS
from sim.nccl import plan as nccl
from sim.nccl import rings_and_trees as paths
from sim.nccl.costs import NcclCosts
from sim.nccl.model.predictor import TunedCollective, choices
from sim.nccl.plan import NcclPlan, Phase
from sim.nccl.tuning import latency_ns, overhead, topology, transfer_ns
from tests.sim import collective_calls as make

HOPPER = NcclCosts(
    intra_bytes_per_s=450e9,
    inter_bytes_per_s=50e9,
    nic_latency_ns=0,
    hosts=8,
    ranks_per_host=8,
    compute_capability=90,
    nvlink=True,
)
LARGE = 1 << 30

Bound = Literal["gpu", "nic"]


def idle_ns(phase: Phase, layout: tuple[int, ...], costs: NcclCosts) -> float:
    """The phase alone on the cluster: its most loaded GPU link or NIC at full rate. Every GPU of a host in order."""
    nics = costs.nics_per_host or costs.ranks_per_host
    local = [layout[:rank].count(host) for rank, host in enumerate(layout)]
    busy: dict[tuple[Bound, str, int], float] = {}
    for source, target, size_bytes in phase.transfers:
        for rank, way in ((source, "out"), (target, "in")):
            end: tuple[Bound, str, int] = ("gpu", way, rank)
            rate = costs.intra_bytes_per_s
            if layout[source] != layout[target]:
                end = ("nic", way, layout[rank] * nics + local[rank] % nics)
                rate = costs.inter_bytes_per_s * costs.payload_share
            busy[end] = busy.get(end, 0.0) + size_bytes / rate * 1e9
    return phase.latency_ns + max(busy.values())


def layout_of(hosts: int, ranks_per_host: int) -> tuple[int, ...]:
    return tuple(rank // ranks_per_host for rank in range(hosts * ranks_per_host))


def only_phase(plan: NcclPlan) -> Phase:
    assert len(plan.phases) == 1
    return plan.phases[0]


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize(
    ("op", "factor"),
    [("all_reduce", 2.0), ("reduce_scatter_tensor", 1.0), ("all_gather_into_tensor", 1.0)],
)
def test_a_large_ring_takes_the_links_bandwidth_a_copy_a_round_and_its_latency(
    ranks: int, op: str, factor: float
) -> None:
    """Of the time of 2 (p-1) or p-1 chunks that a round takes, the copy that follows is 0.4 of one."""
    size_bytes = LARGE // ranks * ranks
    calls = make.reduction(op, size_bytes // (ranks if op == "all_gather_into_tensor" else 1), ranks)
    layout = layout_of(1, ranks)
    costs = replace(HOPPER, compute_capability=80, intra_bytes_per_s=300e9)
    plan = nccl.plan(calls, layout, costs)
    phase = only_phase(plan)
    wire_ns = factor * (ranks - 1) / ranks * size_bytes / 240e9 * 1e9
    assert (plan.algorithm, plan.protocol) == ("ring", "Simple")
    taken = (idle_ns(phase, layout, costs) - phase.latency_ns) / wire_ns
    assert taken == pytest.approx(1 + 0.4 / (factor * (ranks - 1)), rel=0.02)


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_rings_over_hosts_use_every_nic_alike_and_take_their_rates_together(hosts: int) -> None:
    layout, ranks = layout_of(hosts, 8), hosts * 8
    costs = replace(HOPPER, inter_bytes_per_s=25e9)
    plan = nccl.plan(make.reduction("reduce_scatter_tensor", LARGE, ranks), layout, costs)
    phase = only_phase(plan)
    across = [transfer for transfer in phase.transfers if layout[transfer[0]] != layout[transfer[1]]]
    assert len(across) == hosts * 8
    assert {source for source, _, _ in across} == {target for _, target, _ in across} == set(range(ranks))
    assert len({round(size_bytes) for _, _, size_bytes in across}) == 1
    wire_ns = (ranks - 1) / ranks * LARGE / (8 * 25e9) * 1e9
    copied_ns = LARGE / (16 * ranks) / 25e9 * 1e9  # of 16 channels, each by itself
    assert idle_ns(phase, layout, costs) == pytest.approx(phase.latency_ns + wire_ns + copied_ns, rel=0.01)


def test_a_host_with_one_nic_has_one_ring() -> None:
    layout, costs = layout_of(2, 4), replace(HOPPER, nics_per_host=1, ranks_per_host=4, hosts=2)
    phase = only_phase(nccl.plan(make.reduction("reduce_scatter_tensor", LARGE, 8), layout, costs))
    assert [(source, target) for source, target, _ in phase.transfers] == [(i, (i + 1) % 8) for i in range(8)]


def test_pci_express_carries_the_protocols_bytes_however_quick_the_nics_are() -> None:
    pcie = replace(HOPPER, nvlink=False, ranks_per_host=1, intra_bytes_per_s=32e9, bridge_bytes_per_s=100e9)
    for nic_bytes_per_s in (50e9, 500e9):
        costs = replace(pcie, inter_bytes_per_s=nic_bytes_per_s)
        plan = nccl.plan(make.reduction("all_reduce", LARGE, 4), layout_of(4, 1), costs)
        assert (plan.algorithm, plan.protocol) == ("ring", "Simple")
        for _, _, size_bytes in only_phase(plan).transfers:
            assert size_bytes == pytest.approx(
                2 * 3 / 4 * LARGE * 15.75 / 12
            )  # of PCI Express 3.0, NCCL counts 12 GB/s


def test_hosts_of_a_chain_forward_whole_slices() -> None:
    costs = replace(HOPPER, compute_capability=70, ranks_per_host=1, inter_bytes_per_s=1.2e9)
    plans = [nccl.plan(make.broadcast(LARGE, hosts, 0), layout_of(hosts, 1), costs) for hosts in (4, 8)]
    few_ns, many_ns = (only_phase(plan).latency_ns for plan in plans)
    assert many_ns - few_ns == pytest.approx(4 * 2 * (512 << 10) / 1.2, rel=0.01)


OPS = ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "reduce", "broadcast", "barrier")


@st.composite
def collectives(draw: st.DrawFn) -> tuple[list[Call], tuple[int, ...], NcclCosts]:
    hosts, ranks_per_host = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    ranks, op = hosts * ranks_per_host, draw(st.sampled_from(OPS))
    root = draw(st.integers(0, ranks - 1))
    size_bytes = draw(st.one_of(st.integers(1, 4096), st.integers(1, 1 << 28))) * ranks
    if op == "broadcast":
        calls = make.broadcast(size_bytes, ranks, root)
    elif op == "barrier":
        calls = make.barrier(ranks)
    else:
        calls = make.reduction(op, size_bytes, ranks, 1, root if op == "reduce" else -1)
    costs = NcclCosts(
        intra_bytes_per_s=draw(st.floats(5e9, 900e9)),
        inter_bytes_per_s=draw(st.floats(1e8, 100e9)),
        nic_latency_ns=draw(st.integers(0, 50_000)),
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        compute_capability=draw(st.sampled_from((70, 80, 86, 90, 100))),
        nvlink=draw(st.booleans()),
        nics_per_host=draw(st.sampled_from((None, 1, 2))),
        network_latency_ns=draw(st.integers(0, 10_000_000)),
        payload_share=draw(st.floats(0.5, 1.0)),
        efficiency=draw(st.floats(0.5, 1.0)),
    )
    return calls, layout_of(hosts, ranks_per_host), costs


@given(collectives())
def test_an_idle_cluster_takes_the_choices_latency_and_what_the_links_carry(
    drawn: tuple[list[Call], tuple[int, ...], NcclCosts],
) -> None:
    calls, layout, costs = drawn
    plan = nccl.plan(calls, layout, costs)
    if len(layout) == 1:
        assert plan.phases == ()
        return
    phase = only_phase(plan)
    assert phase.coupled
    shape, op = paths.shape_of(paths.members_by_host(layout), costs), TRAITS[calls[0].op].function
    assert op is not None
    size_bytes = nccl.BARRIER_BYTES if calls[0].op == "barrier" else max(calls[0].bytes_in, calls[0].bytes_out)
    operation = TunedCollective(function=op, size_bytes=size_bytes)
    every = choices(topology(shape, costs), operation)
    choice = next(one for one in every if one.total_ns == plan.predicted_ns)
    taken_ns = latency_ns(choice, operation, shape, costs) + transfer_ns(choice, operation, shape, costs)
    assert idle_ns(phase, layout, costs) == pytest.approx(taken_ns, rel=1e-6, abs=1)


@given(collectives())
def test_pipelined_transfers_carry_the_closed_form_times_one_factor(
    drawn: tuple[list[Call], tuple[int, ...], NcclCosts],
) -> None:
    """Rings p edges of steps/p, trees p-1 edges both ways, chains p-1 edges: of the whole buffer, over all rails."""
    calls, layout, costs = drawn
    ranks = len(layout)
    if ranks == 1:
        return
    plan = nccl.plan(calls, layout, costs)
    phase = only_phase(plan)
    op = calls[0].op
    sent, received = [0.0] * ranks, [0.0] * ranks
    for source, target, size_bytes in phase.transfers:
        assert source != target
        sent[source] += size_bytes
        received[target] += size_bytes
    if plan.algorithm == "nvls_tree":
        assert min(received) > 0
    elif plan.algorithm == "tree":
        factor = sum(received) / (2 * (ranks - 1))
        assert min(received) >= factor * (1 - 1e-9)  # everyone gets the result, inner ones sums as well
    elif op in ("broadcast", "reduce"):
        passed = received if op == "broadcast" else sent  # all but the root get it once, or give it once
        whole = sum(passed) / (ranks - 1)
        assert passed == pytest.approx([0.0 if rank == calls[0].root else whole for rank in range(ranks)])
    else:
        assert received == pytest.approx(sent)
        assert received == pytest.approx([sum(received) / ranks] * ranks)


def test_small_messages_go_by_ll_and_many_hosts_by_tree() -> None:
    layout = layout_of(8, 8)
    small = nccl.plan(make.reduction("all_reduce", 1024, 64), layout, HOPPER)
    large = nccl.plan(make.reduction("all_reduce", LARGE, 64), layout, HOPPER)
    assert (small.algorithm, small.protocol) == ("tree", "LL")
    assert large.protocol == "Simple"
    assert nccl.plan(make.barrier(64), layout, HOPPER) == nccl.plan(make.reduction("all_reduce", 4, 64), layout, HOPPER)


@pytest.mark.parametrize("hosts", range(2, 18))
def test_trees_span_all_hosts_and_load_a_nic_with_at_most_2_5_buffers(hosts: int) -> None:
    members = [[host] for host in range(hosts)]
    loads = paths.tree_loads([members])
    for parents in (paths.tree_parents(hosts), paths._other_tree(hosts)):
        assert parents.count(-1) == 1
        for host in range(hosts):
            climbed, steps = host, 0
            while parents[climbed] >= 0:
                climbed, steps = parents[climbed], steps + 1
            assert steps <= hosts.bit_length()
    assert sum(loads.values()) == pytest.approx(2 * (hosts - 1))
    out = [sum(share for (source, _), share in loads.items() if source == host) for host in range(hosts)]
    assert max(out) <= 2.5


@given(st.integers(1, 9), st.data())
def test_all_to_all_is_one_independent_flow_per_sending_pair(ranks: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from((0, 1, 16384, 16385, 1 << 20)), min_size=ranks**2, max_size=ranks**2))
    rows = [sizes[i * ranks : (i + 1) * ranks] for i in range(ranks)]
    plan = nccl.plan(make.all_to_all(rows), (0,) * ranks, HOPPER)
    expected = {
        (i, j): size * (2 if size <= 16384 else 1) * 25 / 20.6 / 0.88
        for i, row in enumerate(rows)
        for j, size in enumerate(row)
        if i != j and size
    }
    found = {(i, j): size for phase in plan.phases for i, j, size in phase.transfers}
    assert found == pytest.approx(expected)
    assert not any(phase.coupled for phase in plan.phases)


def test_more_peers_than_a_batch_wait_for_more_rounds() -> None:
    """8 operations a batch: 9 peers need a hop more; a hop over the network is 14 us by Simple, the start 8.4."""
    latencies = [
        only_phase(nccl.plan(make.all_to_all([[1 << 20] * ranks] * ranks), (0,) * 5 + (1,) * (ranks - 5), HOPPER))
        for ranks in (9, 10)
    ]
    assert [phase.latency_ns for phase in latencies] == [22_400, 36_400]


def test_rooted_operations_are_flows_from_or_to_the_root() -> None:
    layout = (0, 0, 1)
    size = 1 << 20
    gather = only_phase(nccl.plan(make.make_rooted("gather", size, 3, 1), layout, HOPPER))
    scatter = only_phase(nccl.plan(make.make_rooted("scatter", size, 3, 1), layout, HOPPER))
    send = only_phase(nccl.plan(make.send_recv(size, 3, 2, 0), layout, HOPPER))
    inside = size * overhead(True, HOPPER)
    assert gather.transfers == ((0, 1, inside), (2, 1, float(size)))
    assert scatter.transfers == ((1, 0, inside), (1, 2, float(size)))
    assert send.transfers == ((2, 0, float(size)),)
    assert send.latency_ns == 22_400  # Simple: 8.4 us, and 14 us over the network
    assert [phase.coupled for phase in (gather, scatter, send)] == [False] * 3


def test_a_collective_without_bytes_has_no_phase() -> None:
    assert nccl.plan(make.reduction("all_reduce", 0, 4), (0,) * 4, HOPPER).phases == ()
    assert nccl.plan(make.all_to_all([[5, 0], [0, 5]]), (0, 1), HOPPER).phases == ()
    assert nccl.plan(make.reduction("all_reduce", 8, 1), (0,), HOPPER).phases == ()

"""Links against flows: one activity with its load on every link takes what its flows take.

"links" is here what it is for groups that are too large for flows; for the others see `test_links`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from reports.run import Run
from reports.terminal.text import as_text
from scenarios.config.hardware import Inside, Link, Network, Nics
from scenarios.config.load import load_profile
from scenarios.config.scenario import Scenario
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.gloo import library as gloo_library
from sim.nccl import plan as nccl
from sim.nccl import transport as phases
from sim.nccl.costs import costs_of
from sim.nccl.model.predictor import TunedCollective
from sim.nccl.rings_and_trees import members_by_host, shape_of
from sim.nccl.tuning import choose, latency_ns, transfer_ns
from sim.run import simulate
from tests.lanes import examples
from tests.reports.shown import summarize
from tests.sim.collective_calls import issue
from tests.small import Play, cluster, scenario

Op = Literal["all_to_all", "all_reduce", "reduce_scatter", "all_gather", "broadcast"]
OPS: tuple[Op, ...] = ("all_to_all", "all_reduce", "reduce_scatter", "all_gather", "broadcast")
MIB = 1 << 20


def simulate_program(made: Scenario, program: Callable[[Rank], Awaitable[None]]) -> Recording:
    """In "links" as if every group were too large for flows."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((phases, "MOST_EXACT"), (phases, "MOST_MERGED"), (gloo_library, "MOST_RANKS")):
            patch.setattr(module, name, 0)
        return simulate(made, Play(program))


def takes_ns(op: Op, library: str, fidelity: str, shape: tuple[int, int], elements: int, splits: list[int]) -> int:
    """One collective on an idle leaf-spine cluster; `splits` are the uneven shares of an all-to-all, used in turn."""
    size = math.prod(shape)

    def split(source: int, target: int) -> int:
        return splits[(source * size + target) % len(splits)] * elements // 8

    async def program(rank: Rank) -> None:
        if op != "all_to_all":
            await issue(rank, op, elements)
            return
        sends, receives = zip(*((split(rank.rank, peer), split(peer, rank.rank)) for peer in range(size)), strict=True)
        given, got = (torch.empty(sum(counts), device="meta") for counts in (sends, receives))
        await rank.all_to_all_single(got, given, list(receives), list(sends))

    network = Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=2.0)
    made = scenario(cluster(*shape, network=network), library=library, fidelity=fidelity, payload="sizes")
    return max(span.end_ns for span in simulate_program(made, program).spans)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (4, 2), (1, 4)])
def test_a_collective_takes_equally_long_as_links_and_as_flows(op: Op, library: str, shape: tuple[int, int]) -> None:
    """Of messages long against their latency."""
    elements = MIB if shape[0] > 1 else 16 * MIB
    times = [takes_ns(op, library, fidelity, shape, elements, [8]) for fidelity in ("flows", "links")]
    assert times[1] == pytest.approx(times[0], rel=0.02)


@examples(40)
@given(
    st.sampled_from([(2, 2), (4, 1), (3, 2), (1, 4)]),
    st.lists(st.integers(0, 16), min_size=3, max_size=11).filter(any),
    st.sampled_from(["gloo", "nccl"]),
)
def test_uneven_exchanges_take_the_time_of_their_busiest_link(
    shape: tuple[int, int], splits: list[int], library: str
) -> None:
    """Of messages long against their latency, also where only neighbours in a host send any."""
    size = math.prod(shape)
    assume(any(splits[pair % len(splits)] for pair in range(size * size) if pair // size != pair % size))
    times = [takes_ns("all_to_all", library, fidelity, shape, 16 * MIB, splits) for fidelity in ("flows", "links")]
    flows, links = times
    assert links <= flows * 1.01  # one activity is never held up by how its flows share
    assert links == pytest.approx(flows, rel=0.25)


def kernel_beside_a_collective(*, late_ns: int, kernel: Kernel, multiprocessors: int | None) -> tuple[int, int]:
    """ns of a kernel that begins with an all-reduce on one rank, and of that all-reduce; the others enter later."""
    gpu = dataclasses.replace(cluster().host.gpu, multiprocessors=multiprocessors)
    on = cluster(1, 4, gpu=gpu)

    async def program(rank: Rank) -> None:
        beside = rank.stream("beside")
        if rank.rank:
            await rank.compute(Kernel(kind="wait", flops=late_ns * 1e4), int, label="late")
        reduced = rank.all_reduce(torch.empty(1 << 26, device="meta"), label="reduced")
        if not rank.rank:
            await beside.compute(kernel, int, label="kernel")
        await reduced

    spans = simulate(scenario(on, library="nccl", payload="sizes"), Play(program)).spans
    taken = {span.label: span.end_ns - span.start_ns for span in spans if not span.rank}
    return taken["kernel"], taken["reduced"]


def test_a_channel_keeps_a_multiprocessor_from_kernels_while_its_rank_is_in_the_collective() -> None:
    """Also while it waits for others. Of kernels nothing else changes, and nothing of the collective."""
    product = Kernel(kind="gemm", flops=1e9, dtype="float32")
    alone_ns, reduced_ns = kernel_beside_a_collective(late_ns=0, kernel=product, multiprocessors=None)
    beside_ns, same_ns = kernel_beside_a_collective(late_ns=0, kernel=product, multiprocessors=16)
    assert (alone_ns, same_ns) == (100_000, reduced_ns)
    channels = nccl.channels([0] * 4, costs_of(cluster(1, 4)))
    assert beside_ns == pytest.approx(alone_ns / (1 - channels / 16), rel=1e-3)
    waiting_ns, _ = kernel_beside_a_collective(late_ns=500_000, kernel=product, multiprocessors=16)
    assert waiting_ns == beside_ns


def test_bytes_on_a_gpus_links_take_memory_bandwidth_from_kernels() -> None:
    look_up = Kernel(kind="embedding_lookup", bytes_read=1e8)
    alone_ns, reduced_ns = kernel_beside_a_collective(late_ns=0, kernel=look_up, multiprocessors=None)
    beside_ns, same_ns = kernel_beside_a_collective(late_ns=0, kernel=look_up, multiprocessors=10**6)
    assert same_ns == reduced_ns > 2 * alone_ns
    assert 1.05 * alone_ns < beside_ns < 2 * alone_ns


def beside_another(*, library: str, fidelity: str, late_ns: int = 0) -> Recording:
    """Two all-reduces of all ranks at once, each in a group of its own; rank 0 enters `late_ns` after the others."""

    async def program(rank: Rank) -> None:
        groups = {"one": rank.world, "other": rank.new_group(range(rank.world_size))}
        with rank.step(0):
            await rank.compute(Kernel(kind="wait", flops=late_ns * 1e4 if not rank.rank else 0.0), int, label="late")
            tensor = torch.empty(1 << 24, device="meta")
            for work in [rank.all_reduce(tensor, group=group, label=name) for name, group in groups.items()]:
                await work
            empty = torch.empty(rank.world_size, device="meta")
            await rank.all_to_all_single(empty, empty.clone(), label="exchanged")

    on = cluster(4, 1)
    return simulate_program(scenario(on, library=library, fidelity=fidelity, payload="sizes"), program)


@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_collectives_that_share_links_take_longer_than_nccl_s_own_formula(fidelity: str) -> None:
    """Their bytes take twice as long, whoever enters late; the summary shows both. NCCL has none of an all-to-all."""
    costs = costs_of(cluster(4, 1))
    shape = shape_of(members_by_host([0, 1, 2, 3]), costs)
    operation = TunedCollective(function="all_reduce", size_bytes=1 << 26)
    choice = choose(operation, shape, costs)
    alone = (choice, operation, shape, costs)
    shared_ns = latency_ns(*alone) + 2 * transfer_ns(*alone)
    for late_ns in (0, 10**7):
        run = Run.of(beside_another(library="nccl", fidelity=fidelity, late_ns=late_ns))
        assert run.formulas["label"].tolist() == ["one", "other"]
        assert run.formulas["formula_ns"].tolist() == [round(choice.total_ns)] * 2
        assert run.formulas["median_ns"].to_numpy() == pytest.approx([shared_ns] * 2, rel=1e-6)
        assert (run.formulas["difference"] > 0.9).all()
        assert "NCCL's own formula" in as_text(summarize(run))


@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_gloo_has_no_formula(fidelity: str) -> None:
    run = Run.of(beside_another(library="gloo", fidelity=fidelity))
    assert set(run.spans["formula_ns"]) == {-1}
    assert "NCCL's own formula" not in as_text(summarize(run))


DGX1 = load_profile("dgx1_v100")


def mesh_takes_ns(hosts: int, group: list[int], size_bytes: int, fidelity: str) -> int:
    """An all-reduce of some GPUs of each DGX-1, alone."""
    on = dataclasses.replace(DGX1, hosts=hosts)
    ranks = [host * 8 + gpu for host in range(hosts) for gpu in group]

    async def program(rank: Rank) -> None:
        members = rank.new_group(ranks)
        if rank.rank in ranks:
            await rank.all_reduce(torch.empty(size_bytes, dtype=torch.int8, device="meta"), group=members)

    made = scenario(on, library="nccl", fidelity=fidelity, payload="sizes")
    spans = simulate_program(made, program).spans
    return max(span.end_ns for span in spans) - min(span.start_ns for span in spans)


@pytest.mark.parametrize("fidelity", ["flows", "links"])
@pytest.mark.parametrize(
    ("hosts", "group"), [(1, [*range(8)]), (1, [4, 1, 0]), (1, [0, 5]), (2, [*range(8)]), (3, [5, 6])]
)
@pytest.mark.parametrize("size_bytes", [1 << 12, 1 << 28])
def test_an_all_reduce_alone_on_a_mesh_takes_its_latency_and_what_the_links_carry(
    hosts: int, group: list[int], size_bytes: int, fidelity: str
) -> None:
    costs = costs_of(dataclasses.replace(DGX1, hosts=hosts))
    layout = [host for host in range(hosts) for _ in group]
    shape = shape_of(members_by_host(layout), costs, group * hosts)
    operation = TunedCollective(function="all_reduce", size_bytes=size_bytes)
    choice = choose(operation, shape, costs)
    alone = (operation, shape, costs)
    expected_ns = latency_ns(choice, *alone) + transfer_ns(choice, *alone)
    assert mesh_takes_ns(hosts, group, size_bytes, fidelity) == pytest.approx(expected_ns, rel=1e-6, abs=2)


def test_a_ring_over_all_of_a_mesh_loads_every_nvlink_alike() -> None:
    """All links of a pair together carry as many times more as there are: every one of them is full."""

    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(1 << 28, dtype=torch.int8, device="meta"))

    links = simulate(scenario(dataclasses.replace(DGX1, hosts=1), library="nccl", payload="sizes"), Play(program)).links
    carried = {row.link: row.bytes_carried / row.bytes_per_s for row in links}
    nvlinks = [share for link, share in carried.items() if "nvlink" in link]
    assert len(nvlinks) == 32
    assert nvlinks == pytest.approx([nvlinks[0]] * 32)
    assert carried["host0.bridge.out"] == 0


def exchange(inside: Inside, nics: Nics, sizes: list[list[int]], fidelity: str) -> dict[str, float]:
    """Bytes on each link of an all-to-all over hosts of three GPUs."""
    ranks = len(sizes)

    async def program(rank: Rank) -> None:
        sends, receives = sizes[rank.rank], [row[rank.rank] for row in sizes]
        output, mine = (torch.empty(sum(each), dtype=torch.int8, device="meta") for each in (receives, sends))
        await rank.all_to_all_single(output, mine, receives, sends)

    on = cluster(ranks // 3, 3, inside=inside, nics=nics)
    made = scenario(on, library="nccl", fidelity=fidelity, payload="sizes")
    return {row.link: row.bytes_carried for row in simulate_program(made, program).links}


SWITCH = Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=1000))
# GPU 1 is joined to both others, which are not joined to each other.
CHAIN = Inside(
    kind="nvlink_mesh",
    link=Link(bytes_per_s=25e9, latency_ns=1000),
    bridge_bytes_per_s=12e9,
    links=((0, 1, 0), (1, 0, 2), (0, 2, 0)),
)
OWN = Nics(per="gpu", count=3, link=Link(bytes_per_s=1.25e9, latency_ns=2000))
SHARED = dataclasses.replace(OWN, per="host", count=2)
PCIE = Inside(kind="pcie", link=Link(bytes_per_s=16e9, latency_ns=500), bridge_bytes_per_s=24e9)


@examples(40)
@given(
    st.sampled_from([(SWITCH, OWN), (CHAIN, OWN), (SWITCH, SHARED), (PCIE, OWN)]),
    st.integers(2, 3),
    st.sampled_from(["flows", "links"]),
    st.data(),
)
def test_point_to_point_leaves_by_the_rail_of_its_target_where_nvlinks_lead_there(
    wired: tuple[Inside, Nics], hosts: int, fidelity: str, data: st.DataObject
) -> None:
    """NICs carry the sums by rail; over PCI Express, or with shared NICs, those of their own GPUs."""
    inside, nics = wired
    ranks = 3 * hosts
    whole = st.lists(st.sampled_from((0, 20_000, 1 << 20)), min_size=ranks, max_size=ranks)
    sizes = data.draw(st.lists(whole, min_size=ranks, max_size=ranks))
    carried = exchange(inside, nics, sizes, fidelity)
    expected: dict[str, int] = {}
    for source, row in enumerate(sizes):
        for target, size_bytes in enumerate(row):
            if source // 3 == target // 3:
                continue
            i, j = source % 3, target % 3
            has_nvlink = inside is SWITCH or (inside is CHAIN and 1 in (i, j))
            leaves = j if nics is OWN and has_nvlink else i
            for link in (
                f"host{source // 3}.nic{leaves % nics.count}.out",
                f"host{target // 3}.nic{j % nics.count}.in",
            ):
                expected[link] = expected.get(link, 0) + size_bytes
    found = {link: count for link, count in carried.items() if ".nic" in link and count}
    assert found == pytest.approx({link: count for link, count in expected.items() if count})


def test_bytes_for_another_rail_cross_the_nvlinks_to_its_gpu() -> None:
    sizes = [[0] * 6 for _ in range(6)]
    sizes[0][4] = 1 << 20
    carried = exchange(SWITCH, OWN, sizes, "flows")
    assert {link: count for link, count in carried.items() if count} == pytest.approx(
        dict.fromkeys(("gpu0.out", "gpu1.in", "host0.nic1.out", "host1.nic1.in"), 1 << 20)
    )


def test_all_to_all_on_a_mesh_relays_between_gpus_without_nvlinks() -> None:
    sizes = [[0] * 3 for _ in range(3)]
    sizes[0][2] = 1 << 20
    carried = exchange(CHAIN, OWN, sizes, "links")
    assert {link for link, count in carried.items() if count} == {"gpu0.nvlink1.out", "gpu1.nvlink2.out"}
    assert carried["gpu0.nvlink1.out"] == carried["gpu1.nvlink2.out"]

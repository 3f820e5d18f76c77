"""Folded clusters (one simulated host per host class) against all hosts simulated, transfer by transfer."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.faults import Fault, GpuPart, NicPart
from scenarios.config.hardware import Cluster, Inside, Link, Network, Nics
from scenarios.config.host_classes import HostClasses
from scenarios.config.load import load
from scenarios.config.scenario import (
    Gradients,
    Ids,
    Interaction,
    Model,
    Scenario,
    ShardingType,
    Table,
    TimedCollective,
)
from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from scenarios.workloads.collective.program import CollectiveProgram
from scenarios.workloads.dlrm.program import DlrmProgram
from scenarios.workloads.powersgd.program import PowerSGDProgram
from sim.run import simulate
from tests.lanes import examples
from tests.sim.collective_calls import issue
from tests.small import GPU, Play, change, cluster, model_of, scenario, with_model

MIB = 1 << 20
Side = Literal["sent", "received"]


@dataclasses.dataclass(frozen=True)
class World:
    """Hosts of some kinds, on some cluster; `weights` [kinds, gpus]: what each of them sends or receives."""

    cluster: Cluster
    kinds: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]

    def host_classes(self) -> HostClasses:
        loads = np.array([[kind] for kind in self.kinds], float)
        return HostClasses.of(loads, self.cluster.host.gpus, self.cluster.faulty_hosts)

    @property
    def is_oversubscribed(self) -> bool:
        return self.cluster.network.oversubscription > 1

    def weight(self, rank: int) -> int:
        host, gpu = divmod(rank, self.cluster.host.gpus)
        return self.weights[self.kinds[host]][gpu]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    gpus = draw(st.sampled_from([1, 2, 4]))
    hosts = draw(st.integers(2, 16 // gpus))
    kind: Any = draw(st.sampled_from(["nvlink", "pcie"]))
    inside = Inside(kind=kind, link=Link(bytes_per_s=1e11, latency_ns=1000), bridge_bytes_per_s=4e10)
    link = Link(bytes_per_s=draw(st.sampled_from([1.25e9, 2.5e10])), latency_ns=2000)
    nics = draw(st.sampled_from([Nics(per="gpu", count=gpus, link=link), Nics(per="host", count=1, link=link)]))
    per_leaf = draw(st.integers(1, hosts))
    leaves = Network(kind="leaf_spine", hosts_per_leaf=per_leaf, oversubscription=draw(st.sampled_from([1.0, 4.0])))
    network = dataclasses.replace(
        draw(st.sampled_from([Network(kind="non_blocking"), leaves])), sharp=draw(st.booleans())
    )
    kinds = tuple(draw(st.lists(st.integers(0, 2), min_size=hosts, max_size=hosts)))
    rows = st.lists(st.integers(0, 8), min_size=gpus, max_size=gpus)
    weights = tuple(tuple(draw(rows)) for _ in range(3))
    made = cluster(hosts, gpus, inside=inside, nics=nics, network=network)
    return World(made, kinds, weights)


@dataclasses.dataclass
class Folded(Play):
    """A program with its hosts."""

    host_classes: HostClasses | None = None


def play(world: World, function: Callable[[Rank], Awaitable[None]], *, folded: bool) -> Recording:
    fidelity: Any = "links" if folded else "flows"
    made = scenario(world.cluster, library="nccl", payload="sizes", fidelity=fidelity)
    return simulate(made, Folded(function, host_classes=world.host_classes() if folded else None))


def end_ns(recording: Recording) -> int:
    return max(span.end_ns for span in recording.spans)


def exchange(world: World, side: Side, elements: int) -> Callable[[Rank], Awaitable[None]]:
    """What a rank sends to each depends on itself alone, or on the other alone."""

    async def program(rank: Rank) -> None:
        group, own = rank.world, elements * world.weight(rank.rank)
        others = [elements * world.weight(member) for member in group.ranks]
        sends, receives = ([own] * len(others), others) if side == "sent" else (others, [own] * len(others))
        given = torch.empty(group.total(sends), device="meta")
        await rank.all_to_all_single(torch.empty(group.total(receives), device="meta"), given, receives, sends)

    return program


@given(worlds(), st.sampled_from(["sent", "received"]), st.sampled_from([600, 40_000, 300_000]))
@examples(60)
def test_a_folded_exchange_takes_as_long_as_the_flows_of_all_hosts(world: World, side: Side, elements: int) -> None:
    program = exchange(world, side, elements)
    every, folded = play(world, program, folded=False), play(world, program, folded=True)
    if world.is_oversubscribed:  # hosts of one kind are held up more in one leaf than in another: that is not seen
        assert 0.9 * end_ns(every) <= end_ns(folded) <= 1.002 * end_ns(every)
    else:
        assert end_ns(folded) == pytest.approx(end_ns(every), rel=0.002)
    assert sum(span.rank_count for span in folded.spans) == world.cluster.world_size
    sent = [sum(span.bytes_in * span.rank_count for span in one.spans) for one in (every, folded)]
    assert sent[0] == sent[1]


@given(worlds(), st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "barrier"]), st.integers(1, 4 * MIB))
@examples(60)
def test_a_folded_reduction_takes_as_long_as_that_of_all_hosts(world: World, op: str, share: int) -> None:
    async def program(rank: Rank) -> None:
        await issue(rank, op, share)

    every, folded = play(world, program, folded=False), play(world, program, folded=True)
    assert end_ns(folded) == pytest.approx(end_ns(every), rel=0.01)


@given(worlds(), st.integers(1, 50_000))
@examples(30)
def test_links_of_a_representative_carry_as_much_as_any_hosts(world: World, elements: int) -> None:
    program = exchange(world, "received", elements)
    every, folded = play(world, program, folded=False), play(world, program, folded=True)
    carried = {link.link: link.bytes_carried for link in every.links}
    for link in folded.links:
        assert link.bytes_carried == pytest.approx(carried[link.link], rel=1e-9, abs=1)
    for sort in {link.link_class for link in every.links}:
        together = [
            sum(link.bytes_carried * link.link_count for link in one.links if link.link_class == sort)
            for one in (every, folded)
        ]
        assert together[1] == pytest.approx(together[0], rel=1e-9, abs=1)


def training(types: tuple[ShardingType, ...], on: Cluster, **changes: Any) -> Scenario:
    """Ids are spread evenly, and are so many that what is drawn is near what is expected."""
    tables = tuple(
        Table(name=f"t{number}", rows=64 * on.world_size, dim=32, ids_per_sample=ids, ids=Ids(), sharding=(kind,))
        for number, (ids, kind) in enumerate(zip((4, 1, 2, 3, 2), types * 5, strict=False))
    )
    model = Model(dense_features=8, bottom=(64, 32), interaction=Interaction(kind="cat"), top=(32, 1), tables=tables)
    whole = scenario(on, model=model, batch_size=512, library="nccl", payload="sizes", ranks="each")
    return change(whole, **changes)


BIG = dataclasses.replace(GPU, memory_bytes=1 << 40, multiprocessors=100, launch_ns=4000)


@pytest.mark.parametrize(
    "types",
    [
        ("table_row_wise",),
        ("table_wise",),
        ("row_wise",),
        ("data_parallel", "table_row_wise"),
        ("table_row_wise", "row_wise"),
    ],
)
@pytest.mark.parametrize(
    "network", [Network(kind="non_blocking"), Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=4.0)]
)
def test_a_folded_step_takes_as_long_as_that_of_all_hosts(types: tuple[ShardingType, ...], network: Network) -> None:
    made = training(types, cluster(8, 4, gpu=BIG, network=network), fidelity="flows")
    folded = made.with_run(fidelity="links", ranks="alike")
    program = DlrmProgram(folded)
    assert program.host_classes is not None
    assert len(program.host_classes.representatives) < 8
    steps = [
        max(s.end_ns - s.start_ns for s in one.spans if s.kind == "step")
        for one in (simulate(made, DlrmProgram(made)), simulate(folded, program))
    ]
    assert steps[1] == pytest.approx(steps[0], rel=0.03)


def test_gradients_of_many_hosts_are_compressed_by_one() -> None:
    gradients = Gradients(shapes=((256, 512), (512,), (64, 512)), forward_flops=1e9, backward_flops=2e9)
    on = cluster(8, 4, gpu=BIG)
    made = scenario(on, program="powersgd", gradients=gradients, library="nccl", payload="sizes", steps=2)
    folded = made.with_run(fidelity="links", ranks="alike")
    program = PowerSGDProgram(folded)
    assert program.host_classes is not None
    assert program.host_classes.counts == (8,)
    every = simulate(made, PowerSGDProgram(made))
    assert end_ns(simulate(folded, program)) == pytest.approx(end_ns(every), rel=0.01)


def test_slow_hosts_are_a_class_of_their_own_and_slow_all() -> None:
    on = cluster(16, 2, gpu=BIG)
    slow = (Fault(GpuPart(5, 1), 0.25), Fault(NicPart(9, 0), 0.125))
    ends = []
    for each in ((), slow):
        made = training(("table_row_wise",), dataclasses.replace(on, faults=each), fidelity="links", ranks="alike")
        program = DlrmProgram(made)
        assert program.host_classes is not None
        assert set(made.cluster.faulty_hosts) <= set(program.host_classes.representatives)
        recording = simulate(made, program)
        ends.append(end_ns(recording))
        unfolded = made.with_run(fidelity="flows", ranks="each")
        assert ends[-1] == pytest.approx(end_ns(simulate(unfolded, DlrmProgram(unfolded))), rel=0.03)
    assert ends[1] > 1.5 * ends[0]


def test_a_ready_scenario_of_131072_gpus_is_simulated_as_few_hosts() -> None:
    ready = load("scenarios/library/twrw_2048x8.toml")
    made = dataclasses.replace(ready, cluster=dataclasses.replace(ready.cluster, hosts=16_384))
    program = DlrmProgram(made)
    assert made.cluster.world_size == 131_072
    assert program.host_classes is not None
    assert sum(program.host_classes.counts) == 16_384
    recording = simulate(made, program)
    steps = [span for span in recording.spans if span.kind == "step"]
    assert sum(span.rank_count for span in steps) == 131_072 * made.run.steps


def test_calls_that_do_not_fit_raise_one_sentence() -> None:
    world = World(cluster(4, 2), (0, 0, 1, 1), ((1, 1), (1, 1)))

    async def program(rank: Rank) -> None:
        rows = torch.empty(16 if rank.rank else 24, device="meta")
        splits = [rows.numel() / 8] * len(rank.world.ranks)
        await rank.all_to_all_single(rows, torch.empty_like(rows), splits, splits)

    with pytest.raises(
        CollectiveError, match=r"group world: all_to_all_single: rank 0 sends 12 bytes to rank 1, which expects 8"
    ):
        play(world, program, folded=True)


def test_splits_must_add_up_over_all_that_members_represent() -> None:
    world = World(cluster(4, 2), (0, 0, 1, 1), ((1, 1), (1, 1)))

    async def program(rank: Rank) -> None:
        rows = torch.empty(16, device="meta")
        await rank.all_to_all_single(rows, torch.empty_like(rows), [2.0] * 4, [3.0] * 4)

    with pytest.raises(
        CollectiveError, match=r"rank 0: all_to_all_single: input has 4 split sizes, together 24, expected"
    ):
        play(world, program, folded=True)


DOMAINS = Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=1000), hosts_per_domain=2)
LEAVES = Network(kind="leaf_spine", latency_ns=100, hosts_per_leaf=4, oversubscription=2.0)
RAILS = Network(kind="rail_only", latency_ns=100)
CLUSTERS = {
    "one switch": cluster(8, 4, gpu=BIG),
    "domains": cluster(8, 2, gpu=BIG, inside=DOMAINS),
    "domains and leaves": cluster(8, 2, gpu=BIG, inside=DOMAINS, network=LEAVES),
    "rails": cluster(8, 2, gpu=BIG, network=RAILS),
    "rails of domains": cluster(8, 2, gpu=BIG, inside=DOMAINS, network=RAILS),
}


def both_ways(on: Cluster, op: Any, size_bytes: int) -> tuple[Recording, Recording]:
    """Return a collective of all hosts, and of representatives."""
    call = TimedCollective(op=op, size_bytes=size_bytes)
    made = scenario(on, program="collective", collective=call, library="nccl", payload="sizes", ranks="each")
    folded = made.with_run(fidelity="links", ranks="alike")
    return simulate(made, CollectiveProgram(made)), simulate(folded, CollectiveProgram(folded))


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_collective_on_a_folded_cluster_agrees_with_the_whole_one(name: str, op: Any) -> None:
    on = CLUSTERS[name]
    every, folded = both_ways(on, op, 8 * MIB)
    per_domain = on.host.inside.hosts_per_domain
    assert folded.info.host_counts == tuple((host, 8 // per_domain) for host in range(per_domain))
    assert end_ns(folded) == pytest.approx(end_ns(every), rel=0.01)
    for sort in {link.link_class for link in every.links}:
        carried = [
            sum(link.bytes_carried * link.link_count for link in one.links if link.link_class == sort)
            for one in (every, folded)
        ]
        assert carried[1] == pytest.approx(carried[0], rel=1e-9)
    moved = [sum(row.bytes_carried * row.host_count for row in one.traffic) for one in (every, folded)]
    assert moved[1] == pytest.approx(moved[0], rel=1e-9)


def test_a_group_of_ranks_that_are_not_there_is_refused() -> None:
    async def program(rank: Rank) -> None:
        rank.new_group([0, 1])

    world = World(cluster(4, 2), (0, 0, 1, 1), ((1, 1), (1, 1)))
    with pytest.raises(
        ProgramError, match=r"rank 0: new_group: expected run.ranks = 'each', which plays all its ranks"
    ):
        play(world, program, folded=True)


@pytest.mark.parametrize("kinds", [(0, 0, 0, 0), (0, 1, 0, 1)])
@pytest.mark.parametrize("op", ["all_to_all", "all_reduce"])
def test_connections_begin_slowly(kinds: tuple[int, ...], op: str) -> None:
    link = Link(bytes_per_s=1.25e9, latency_ns=50_000)
    nics = Nics(per="gpu", count=2, link=link, initial_window_bytes=14_480)
    world = World(cluster(4, 2, nics=nics), kinds, ((4, 4), (4, 4)))

    async def reduce(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(1 * MIB, device="meta"))

    program = reduce if op == "all_reduce" else exchange(world, "sent", 20_000)
    every, folded = play(world, program, folded=False), play(world, program, folded=True)
    assert end_ns(folded) == pytest.approx(end_ns(every), rel=0.01)


@pytest.mark.parametrize("slow", [0, 1, 6])
@pytest.mark.parametrize("size_bytes", [64 << 10, 64 << 20])
def test_a_slow_nic_slows_a_tree_by_its_hosts_share_of_it(slow: int, size_bytes: int) -> None:
    on = dataclasses.replace(cluster(7, 2, gpu=BIG), faults=(Fault(NicPart(slow, 0), 0.3),))
    every, folded = both_ways(on, "all_reduce", size_bytes)
    assert end_ns(folded) == pytest.approx(end_ns(every), rel=0.01)


@pytest.mark.parametrize("kind", ["table_row_wise", "table_wise"])
def test_hosts_that_are_only_near_each_other_add_up(kind: ShardingType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.config.host_classes.MOST_RANKS", 8)
    on = cluster(8, 4, gpu=BIG)
    made = training((kind,), on)
    tables = tuple(
        dataclasses.replace(made.workload.tables[0], name=f"t{number}", dim=8 + 4 * number, ids_per_sample=1 + number)
        for number in range(12)
    )
    model = dataclasses.replace(model_of(made), tables=tables)
    folded = change(made, model=model, fidelity="links", ranks="alike")
    program = DlrmProgram(folded)
    assert program.host_classes is not None
    assert not program.host_classes.is_exact
    every = change(made, model=model, fidelity="flows")
    ends = [end_ns(simulate(every, DlrmProgram(every))), end_ns(simulate(folded, program))]
    assert ends[1] == pytest.approx(ends[0], rel=0.25)


def test_memory_is_that_of_the_fullest_represented_rank() -> None:
    on = cluster(8, 4, gpu=BIG)
    made = training(("table_row_wise",), on)
    tables = tuple(
        dataclasses.replace(made.workload.tables[0], name=f"t{rows}", rows=rows) for rows in (400, 80_000, 800)
    )
    every = with_model(made, tables=tables)
    folded = DlrmProgram(every.with_run(fidelity="links", ranks="alike"))
    assert folded.host_classes is not None
    assert sorted(folded.host_classes.counts) == [3, 5]
    fullest = [
        max(row.size_bytes for row in one.memory if row.part == "embedding weights")
        for one in (DlrmProgram(every), folded)
    ]
    assert fullest[0] == fullest[1]
    assert sum(row.rank_count for row in folded.memory if row.part == "inputs") == 32


def test_hosts_with_slow_gpus_are_classes_of_their_own() -> None:
    faults = tuple(Fault(GpuPart(host, 0), 0.5) for host in range(6))
    on = dataclasses.replace(cluster(6, 1, gpu=BIG), faults=faults)
    made = training(("table_row_wise",), on, fidelity="links", ranks="alike")
    program = DlrmProgram(made)
    assert program.host_classes is not None
    assert program.host_classes.counts == (1,) * 6


def test_a_folded_cluster_of_one_rank_agrees_with_the_whole_one() -> None:
    made = training(("table_wise",), cluster(1, 1, gpu=BIG), fidelity="links", ranks="alike")
    every = made.with_run(fidelity="flows", ranks="each")
    ends = [end_ns(simulate(one, DlrmProgram(one))) for one in (every, made)]
    assert ends[1] == pytest.approx(ends[0], rel=0.03)


def test_expected_ids_below_one_per_rank_are_simulated() -> None:
    on = cluster(3, 6, gpu=BIG)
    made = training(("table_row_wise",), on, batch_size=1, fidelity="links", ranks="alike")
    tables = (dataclasses.replace(made.workload.tables[0], rows=24, ids_per_sample=1),)
    made = with_model(made, tables=tables)
    assert end_ns(simulate(made, DlrmProgram(made))) > 0

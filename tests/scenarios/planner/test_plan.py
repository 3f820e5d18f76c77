"""A scenario's plan: every table placed once, within memory, with the figures that the program and the report need."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Host, Inside, Link, Network, Nics
from scenarios.config.scenario import (
    Interaction,
    Model,
    Optimizer,
    Planner,
    Recommender,
    RunSettings,
    Scenario,
    ShardingType,
    Table,
)
from scenarios.planner.options import capacity_bytes, topology_of
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_text import format_plan, format_proposal, rank_ranges
from scenarios.planner.topology import Topology
from scenarios.seam.errors import ScenarioError
from tests.mistakes import mistakes_of
from tests.scenarios.planner.partition.test_greedy_perf import option
from tests.small import change, model_of, with_model

MIB = 1 << 20
ALL: tuple[ShardingType, ...] = (
    "data_parallel", "table_wise", "row_wise", "table_row_wise", "column_wise", "table_column_wise", "grid_shard",
)  # fmt: skip


def cluster(hosts: int = 2, gpus: int = 4, memory_bytes: int = 100 * MIB, **changes: Any) -> Cluster:
    gpu = Gpu(
        name="test",
        kind=changes.pop("kind", "cuda"),
        memory_bytes=memory_bytes,
        memory_bytes_per_s=2e12,
        flops_per_s={"float32": 6e13},
    )
    nics = changes.pop("nics", Nics(per="gpu", count=1, link=Link(bytes_per_s=50e9, latency_ns=1000)))
    inside = changes.pop("inside", Inside(kind="nvlink", link=Link(bytes_per_s=450e9, latency_ns=500)))
    host = Host(gpus=gpus, gpu=gpu, inside=inside, nics=nics, cores=8, memory_bytes=1 << 40)
    network = changes.pop("network", Network(kind="non_blocking"))
    return Cluster(profile="", hosts=hosts, host=host, network=network, **changes)


def table(name: str, rows: int, sharding: Sequence[ShardingType] = ALL, dim: int = 64, ids: float = 2.0) -> Table:
    return Table(name=name, rows=rows, dim=dim, ids_per_sample=ids, sharding=tuple(sharding))


def scenario(tables: Sequence[Table], on: Cluster | None = None, **changes: Any) -> Scenario:
    model = Model(
        dense_features=13,
        bottom=(64,),
        interaction=Interaction(kind="cat"),
        top=(1,),
        tables=tuple(tables),
        optimizer=Optimizer(kind=changes.pop("optimizer", "adagrad")),
        dtype="float32",
        embedding_dtype=changes.pop("dtype", "float32"),
    )
    planner = changes.pop("planner", Planner(reserved_share=0.0))
    return change(Scenario(
        name="test", path=Path("test.toml"), program="dlrm", cluster=on or cluster(),
        run=RunSettings(batch_size=32, steps=1, fidelity="links", library="nccl", timeout_s=10.0),
        workload=Recommender(model=model, planner=planner),
    ), **changes)  # fmt: skip


tables_of_any_kind = st.lists(
    st.tuples(
        st.integers(1, 30_000),
        st.lists(st.sampled_from(ALL), min_size=1, max_size=3, unique=True),
        st.sampled_from([4, 64, 256]),
    ),
    min_size=1,
    max_size=6,
).map(lambda drawn: [table(f"t{i}", rows, kinds, dim) for i, (rows, kinds, dim) in enumerate(drawn)])


@given(tables=tables_of_any_kind, hosts=st.integers(1, 3), gpus=st.integers(1, 3), megabytes=st.integers(1, 40))
def test_a_plan_holds_every_row_once_within_memory_or_says_why_not(
    tables: list[Table], hosts: int, gpus: int, megabytes: int
) -> None:
    asked = scenario(tables, cluster(hosts, gpus, megabytes * MIB))
    try:
        plan = plan_tables(asked)
    except ScenarioError as error:
        where = {sentence.partition(".rows = ")[0] for sentence in error.sentences}
        if not where <= {f"test.toml: model.tables[{index}]" for index in range(len(tables))}:
            raise
        return
    assert [planned.name for planned in plan.tables] == [each.name for each in tables]
    for planned, each in zip(plan.tables, tables, strict=True):
        assert planned.sharding_type in each.sharding
        copies = hosts * gpus if planned.sharding_type == "data_parallel" else 1
        assert sum(shard.rows * shard.columns for shard in planned.shards) == copies * each.rows * each.dim
    assert max(plan.storage_bytes) <= plan.capacity_bytes == megabytes * MIB
    for rank in range(plan.world_size):
        assert plan.weight_bytes[rank] + plan.optimizer_bytes[rank] <= plan.storage_bytes[rank]
        mine = [row for row in plan.rows if row.rank == rank]
        assert sum(row.storage_bytes for row in mine) == plan.storage_bytes[rank]
        assert sum(row.perf_ms for row in mine) == pytest.approx(plan.perf_ms[rank])
        assert sum(row.rows * row.columns * 4 for row in mine) == plan.weight_bytes[rank]
        assert sum(row.rows * 4 for row in mine) == plan.optimizer_bytes[rank]
    assert plan_tables(asked) == plan


@pytest.mark.parametrize("kind", ALL)
def test_every_id_of_a_step_is_looked_up(kind: ShardingType) -> None:
    """Each column of the table sees the 8 x 32 x 2.5 ids of the global batch."""
    plan = plan_tables(scenario([table("t", 1000, [kind], dim=256, ids=2.5)]))
    seen = dict.fromkeys(range(256), 0.0)
    for row in plan.rows:
        for column in range(row.column_offset, row.column_offset + row.columns):
            seen[column] += row.ids_per_step
    assert set(seen.values()) == {640.0}
    assert [row.shard for row in plan.rows] == list(range(len(plan.rows)))


@pytest.mark.parametrize("kind", ALL)
def test_the_rows_for_some_replicas_are_all_rows_without_the_other_copies(kind: ShardingType) -> None:
    plan = plan_tables(scenario([table("t", 1003, [kind]), table("u", 50, ["data_parallel"])]))
    for replicas in ([], [2, 7], range(8)):
        kept = [row for row in plan.rows if row.sharding_type != "data_parallel" or row.rank in replicas]
        assert list(plan.rows_for(replicas)) == kept


def test_tables_on_100_000_gpus_are_planned_without_looking_at_each() -> None:
    """Listed, the shards of one proposal alone would use up the search's budget."""
    on = cluster(12_500, 8, memory_bytes=1 << 36)
    tables = [
        *(table(f"copied{index}", 10, ["data_parallel", "table_wise"]) for index in range(12)),
        table("cut", 4_000_000, ["row_wise", "table_row_wise"]),
    ]
    plan = plan_tables(scenario(tables, on))
    assert plan.tried > 10
    assert len(plan.row_runs.runs) < 40
    assert len(plan.storage_bytes) == len(plan.perf_ms) == 100_000
    assert plan.table("cut").sharding_type == "table_row_wise"
    (last,) = (row for row in plan.rows_for([99_999]) if row.table == "copied11")
    assert (last.rank, last.shard, last.row_offset) == (99_999, 99_999, 0)


@pytest.mark.parametrize(
    ("kind", "ranks", "first"),
    [
        ("data_parallel", 8, (1000, 64, 80.0)),
        ("table_wise", 1, (1000, 64, 640.0)),
        ("row_wise", 8, (125, 64, 80.0)),
        ("table_row_wise", 4, (250, 64, 160.0)),
    ],
)
def test_shards_have_the_size_and_kernel_of_their_type(
    kind: ShardingType, ranks: int, first: tuple[int, int, float]
) -> None:
    plan = plan_tables(scenario([table("t", 1000, [kind], ids=2.5)]))
    assert [row.rank for row in plan.rows] == list(range(ranks))
    row = plan.rows[0]
    assert (row.rows, row.columns, row.ids_per_step) == first
    assert row.compute_kernel == ("dense" if kind == "data_parallel" else "fused")
    assert plan.table("t").sharding_type == row.sharding_type == kind
    with pytest.raises(KeyError):
        plan.table("u")


def test_bytes_follow_dtype_and_optimizer() -> None:
    tables = [table("t", 1000, ["table_wise"])]
    plan = plan_tables(scenario(tables, optimizer="sgd", dtype="bfloat16"))
    assert plan.weight_bytes[0] == 1000 * 64 * 2
    assert plan.optimizer_bytes[0] == 0
    wide = scenario([table("t", 1000, ["column_wise"], dim=256)])  # each half keeps a state for each of its rows
    assert sum(plan_tables(wide).optimizer_bytes) == 2 * 1000 * 4
    own = dataclasses.replace(model_of(wide).optimizer, state="element")
    each = plan_tables(with_model(wide, optimizer=own))
    assert sum(each.optimizer_bytes) == 1000 * 256 * 4
    more = [sum(one.storage_bytes) for one in (each, plan_tables(wide))]
    assert more[0] - more[1] == 1000 * 254 * 4


def test_columns_are_cut_as_narrow_as_asked() -> None:
    for least, shards in ((128, 2), (64, 4), (256, 1)):
        wide = dataclasses.replace(table("t", 1000, ["column_wise"], dim=256), min_partition=least)
        assert len(plan_tables(scenario([wide])).table("t").shards) == shards


def test_a_small_table_is_replicated() -> None:
    assert plan_tables(scenario([table("t", 10)])).table("t").sharding_type == "data_parallel"


def room(first: str) -> str:
    halves = "16-bit rows (model.embedding_dtype = 'float16')"
    return f"; to make room: {first}, {halves} or rows in host memory (the table's kernel = 'fused_uvm_caching')"


def test_a_table_that_fits_nowhere_is_named_with_its_figures() -> None:
    tables = [table("ok", 10), table("big", 4_000_000, ["table_wise", "table_row_wise"]), table("huge", 10**8, ALL[:2])]
    assert mistakes_of(plan_tables, scenario(tables)) == [
        "test.toml: model.tables[1].rows = 4000000: expected table 'big' to fit into 8 ranks with 100 MiB each for"
        " embeddings; as table_row_wise, the least demanding of its sharding types, it takes 248 MiB on one rank"
        f"{room('row_wise, which cuts a table over all GPUs (sharding)')}",
        "test.toml: model.tables[2].rows = 100000000: expected table 'huge' to fit into 8 ranks with 100 MiB each for"
        " embeddings; as data_parallel, the least demanding of its sharding types, it takes 24.2 GiB on one rank"
        f"{room('row_wise, which cuts a table over all GPUs (sharding)')}",
    ]


def test_tables_that_do_not_fit_together_name_the_largest() -> None:
    tables = [table(f"t{index}", 300_000 + index, ["table_wise"]) for index in range(9)]
    assert mistakes_of(plan_tables, scenario(tables)) == [
        "test.toml: model.tables[8].rows = 300008: expected all 9 tables together to fit into 8 ranks with 100 MiB"
        " each for embeddings; they take at least 670 MiB, 74.5 MiB of it for table 't8' as"
        f" table_wise, which is the largest{room('more GPUs (cluster.hosts)')}",
    ]


def test_buffers_that_fill_a_rank_are_blamed_on_the_batch() -> None:
    one = [table("t", 8, ["row_wise"], ids=30_000.0)]
    with pytest.raises(ScenarioError, match=r"run.batch_size = 32: expected table 't' .* MiB of it buffers"):
        plan_tables(scenario(one, cluster(memory_bytes=MIB)))
    many = [table(f"t{index}", 8, ["row_wise"], ids=30.0) for index in range(80)]
    with pytest.raises(ScenarioError, match=r"run.batch_size = 32: expected all 80 tables .* MiB of it buffers"):
        plan_tables(scenario(many, cluster(memory_bytes=MIB)))


def test_memory_that_is_reserved_is_not_planned() -> None:
    asked = scenario([table("t", 10)], planner=Planner(reserved_share=0.25))
    assert plan_tables(asked).capacity_bytes == capacity_bytes(asked) == 75 * MIB
    assert {device.storage.hbm for device in topology_of(asked).devices} == {75 * MIB}


def test_tables_are_planned_once_for_all_scenarios_that_differ_in_nothing_the_planner_reads() -> None:
    made = scenario([table("a", rows=1000)])
    plan = plan_tables(made)
    assert plan_tables(change(made, steps=7, seed=3, fidelity="flows")) is plan
    for other in (change(made, batch_size=2 * made.batch_size), with_model(made, embedding_dtype="float16")):
        assert plan_tables(other) != plan


def test_a_cpu_rank_has_its_memory_as_ddr() -> None:
    asked = scenario([table("t", 10)], cluster(kind="cpu"))
    device = topology_of(asked).devices[0]
    assert (device.storage.hbm, device.storage.ddr) == (0, 100 * MIB)
    assert plan_tables(asked).storage_bytes[0] > 0


PCIE = Inside(kind="pcie", link=Link(bytes_per_s=60e9, latency_ns=0), bridge_bytes_per_s=100e9)
SHARED = Nics(per="host", count=2, link=Link(bytes_per_s=50e9, latency_ns=0))
SPINE = Network(kind="leaf_spine", hosts_per_leaf=1, oversubscription=2.0)


@pytest.mark.parametrize(
    ("changes", "inside", "network"),
    [
        ({}, 450e6, 50e6),
        ({"payload_share": 0.9}, 450e6, 45e6),
        ({"inside": PCIE}, 25e6, 50e6),
        ({"nics": SHARED}, 450e6, 25e6),
        ({"nics": dataclasses.replace(SHARED, count=8)}, 450e6, 50e6),
        ({"network": SPINE}, 450e6, 25e6),
        ({"network": dataclasses.replace(SPINE, hosts_per_leaf=2)}, 450e6, 50e6),
        ({"hosts": 1}, 450e6, 450e6),
    ],
)
def test_a_rank_has_its_share_of_what_is_shared(changes: dict[str, Any], inside: float, network: float) -> None:
    topology = topology_of(scenario([], cluster(**changes)))
    assert topology.intra_host_bw == pytest.approx(inside)
    assert topology.inter_host_bw == pytest.approx(network)
    assert topology.hbm_mem_bw == 2e9


def test_a_plan_is_printed_whole() -> None:
    tables = [table("ids", 100_000, ["table_wise"], ids=20_000.0), table("few", 10, ["data_parallel"], ids=10_000.0)]
    assert format_plan(plan_tables(scenario(tables, cluster(1, 2)))) == PRINTED


PRINTED = """\
table                sharding          ranks                       shard     storage   perf ms
ids                  table_wise        0                     100000 x 64    34.6 MiB     0.583
few                  data_parallel     0-1                       10 x 64     4.9 MiB     0.253

ranks              storage of limit   perf ms  largest tables
0                   37 MiB     37 %     0.837  ids 0.583, few 0.253
1                 2.45 MiB      2 %     0.253  few 0.253

perf: bottleneck rank / mean = 1.53 (rank 0): 0.837 against 0.545 ms
  ids +0.292 ms: one shard takes longer than the mean rank; only a finer cut would help
storage: fullest rank / mean = 1.88 (rank 0), limit 100 MiB
proposals: 1 tried, 1 fitted"""


@pytest.mark.parametrize("world", [(2, 4), (40, 1)])
def test_a_printed_plan_stays_narrow(world: tuple[int, int]) -> None:
    names = [f"a_table_with_a_very_long_name_{index}" for index in range(40)]
    tables = [table(name, 1000 * (index + 1), ["table_wise"]) for index, name in enumerate(names)]
    text = format_plan(plan_tables(scenario(tables, cluster(*world))))
    assert max(map(len, text.splitlines())) <= 100
    assert ("24 more ranks, less busy" in text) == (world == (40, 1))


def place(rows: dict[str, tuple[str, list[tuple[int, int, float]]]], hbm_cap: int = 100) -> str:
    """Printed causes of a proposal of shards as (rank, bytes, ms) on four ranks, two a host."""
    proposal = [option(name, kind, [(size, 0, ms) for _, size, ms in shards]) for name, (kind, shards) in rows.items()]
    for each, (_, shards) in zip(proposal, rows.values(), strict=True):
        for made, (rank, _, _) in zip(each.shards, shards, strict=True):
            made.rank = rank
    lines = format_proposal(proposal, Topology(4, "cuda", hbm_cap=hbm_cap, local_world_size=2)).splitlines()
    return "\n".join(line for line in lines if line.startswith("  "))


TW = "table_wise"


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        (
            {"a": (TW, [(0, 1, 8.0)])},
            "  a +6 ms: one shard takes longer than the mean rank; only a finer cut would help",
        ),
        (
            {"a": (TW, [(0, 1, 2.0)]), "b": (TW, [(0, 1, 1.0)])}
            | {f"c{rank}": (TW, [(rank, 99, 2.5)]) for rank in (1, 2, 3)},
            "  a +1.5 ms: rank 1, the least busy with room, would become as busy\n"
            "  b +0.75 ms: rank 1, the least busy with room, would become as busy",
        ),
        (
            {"a": (TW, [(0, 9, 2.0)]), "b": (TW, [(0, 9, 2.0)])}
            | {f"c{rank}": (TW, [(rank, 99, 2.5)]) for rank in (1, 2, 3)},
            "  a +1.5 ms: no other rank has 9 B left\n  b +1.5 ms: no other rank has 9 B left",
        ),
        (
            {"a": (TW, [(0, 9, 2.0)]), "b": (TW, [(0, 9, 2.0)])}
            | {f"c{rank}": (TW, [(rank, 9, 1.9)]) for rank in (1, 2, 3)},
            "  a +1.5 ms: was placed early; rank 1 now has room and less load\n"
            "  b +1.5 ms: was placed early; rank 1 now has room and less load",
        ),
        (
            {"a": ("table_row_wise", [(0, 9, 1.0), (1, 9, 1.0)]), "b": ("row_wise", [(0, 9, 2.0)] + [
                (rank, 9, 1.5) for rank in (1, 2, 3)])},
            "  a +0.5 ms: its shards stay together on a host\n"
            "  b +0.375 ms: every rank has a shard of it, and this one's is larger",
        ),
    ],
)  # fmt: skip
def test_a_printed_plan_says_what_keeps_the_busiest_rank_busy(
    rows: dict[str, tuple[str, list[tuple[int, int, float]]]], cause: str
) -> None:
    assert place(rows) == cause


def test_an_even_plan_needs_no_reasons() -> None:
    assert place({f"t{rank}": (TW, [(rank, 1, 1.0)]) for rank in range(4)}) == ""


def test_a_proposal_without_ranks_cannot_be_printed() -> None:
    with pytest.raises(ValueError, match="of table t: no rank; partition the proposal first"):
        format_proposal([option("t", TW, [(1, 0, 1.0)])], Topology(1, "cuda"))


def test_ranks_in_short() -> None:
    assert rank_ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert rank_ranges([3]) == "3"

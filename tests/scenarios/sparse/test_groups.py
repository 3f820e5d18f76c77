"""Every sharding type against a dense model in one process; and a plan that does not fit is one sentence."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.seam.rank import Rank
from scenarios.seam.trace import PlanRow
from scenarios.sparse.groups import ShardedGroup, build_groups, outputs_to_tables, tables_to_outputs
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.sparse.tables import ShardedTable, TableShard, tables_of_plan
from tests.lockstep import Lockstep

TYPES = [
    "data_parallel",
    "table_wise",
    "row_wise",
    "table_row_wise",
    "column_wise",
    "table_column_wise",
    "grid_shard",
]


@dataclass(frozen=True)
class World:
    hosts: int
    local: int

    @property
    def size(self) -> int:
        return self.hosts * self.local

    def lockstep(self, payload: str = "cpu") -> Lockstep:
        return Lockstep(self.hosts, self.local, payload)


def row_shards(rows: int, ranks: list[int], columns: tuple[int, int]) -> list[TableShard]:
    block = -(-rows // len(ranks))
    starts = [min(index * block, rows) for index in range(len(ranks))]
    return [
        TableShard(
            rank=rank,
            row_offset=start,
            rows=min(block, rows - start),
            column_offset=columns[0],
            columns=columns[1],
        )
        for rank, start in zip(ranks, starts, strict=True)
    ]


@st.composite
def table(draw: st.DrawFn, world: World, name: str) -> ShardedTable:
    """A table that the planner could have placed: rows may be fewer than ranks, columns may be cut."""
    kind: Any = draw(st.sampled_from(TYPES))
    rows, width = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    cuts = draw(st.integers(1, 3)) if kind in ("column_wise", "table_column_wise", "grid_shard") else 1
    shards = []
    for cut in range(cuts):
        columns = (cut * width, width)
        host = draw(st.integers(0, world.hosts - 1)) * world.local
        if kind in ("table_row_wise", "grid_shard"):
            shards += row_shards(rows, list(range(host, host + world.local)), columns)
        elif kind == "row_wise":
            shards += row_shards(rows, list(range(world.size)), columns)
        elif kind == "data_parallel":
            shards += [one for rank in range(world.size) for one in row_shards(rows, [rank], columns)]
        else:
            shards += row_shards(rows, [draw(st.integers(0, world.size - 1))], columns)
    return ShardedTable(name=name, rows=rows, dim=cuts * width, sharding_type=kind, shards=tuple(shards))


@st.composite
def models(draw: st.DrawFn) -> tuple[World, list[ShardedTable], list[KeyedJagged]]:
    world = World(draw(st.integers(1, 3)), draw(st.integers(1, 2)))
    tables = [draw(table(world, f"t{index}")) for index in range(draw(st.integers(1, 4)))]
    return world, tables, [draw(samples(tables)) for _ in range(world.size)]


@st.composite
def samples(draw: st.DrawFn, tables: list[ShardedTable]) -> KeyedJagged:
    batch = draw(st.integers(0, 3))
    lengths, ids = [], []
    for one in tables:
        mine = [draw(st.integers(0, 3)) for _ in range(batch)]
        lengths += mine
        ids += [draw(st.integers(0, one.rows - 1)) for _ in range(sum(mine))]
    return KeyedJagged(
        keys=tuple(one.name for one in tables),
        values=torch.tensor(ids, dtype=torch.int64),
        lengths=torch.tensor(lengths, dtype=torch.int32),
        stride=batch,
    )


def pool(features: KeyedJagged, weights: list[Tensor]) -> Tensor:
    """Sums of the rows of each bag, key beside key: [samples, columns of all weights]."""
    bags = features.lengths.view(len(features.keys), -1).long()
    parts = features.values.split(features.length_per_key())
    pooled = []
    for weight, lengths, ids in zip(weights, bags, parts, strict=True):
        bag = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
        pooled.append(torch.zeros(lengths.numel(), weight.shape[1]).index_add(0, bag, weight[ids]))
    return torch.cat(pooled, dim=1)


def whole(shape: tuple[int, ...], seed: int) -> Tensor:
    """Whole numbers, so that sums are exact in any order."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


async def step(
    rank: Rank,
    groups: tuple[ShardedGroup, ...],
    model: dict[str, Tensor],
    given: KeyedJagged,
    grads: dict[str, Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One rank's outputs by table, and what it adds to the gradient of every whole table."""
    outputs, held = [], []
    for group in groups:
        local = await group.input(rank, given)
        lookups = group.lookups(rank.rank)
        assert local.keys == tuple(one.table for one in lookups)
        shards = [
            model[one.table][one.row_offset : one.row_offset + one.rows].narrow(1, one.column_offset, one.columns)
            for one in lookups
        ]
        shards = [shard.detach().requires_grad_() for shard in shards]
        pooled = pool(local, shards) if shards else torch.zeros(local.stride or 0, 0)
        outputs.append(await group.forward(rank, pooled.detach(), local.batch_per_rank))
        held.append((lookups, shards, pooled, local.batch_per_rank))
    total = {name: torch.zeros_like(weight) for name, weight in model.items()}
    for group, grad, (lookups, shards, pooled, batches) in zip(
        groups, tables_to_outputs(groups, grads), held, strict=True
    ):
        came = await group.backward(rank, grad, batches)
        found = torch.autograd.grad(pooled, shards, came) if shards else ()
        for one, part in zip(lookups, found, strict=True):
            into = total[one.table][one.row_offset : one.row_offset + one.rows]
            into.narrow(1, one.column_offset, one.columns).add_(part)
    return outputs_to_tables(groups, outputs), total


@given(models(), st.integers(0, 1000))
def test_sharding_types_together_equal_a_dense_model(
    drawn: tuple[World, list[ShardedTable], list[KeyedJagged]], seed: int
) -> None:
    world, tables, given = drawn
    model = {one.name: whole((one.rows, one.dim), seed + index) for index, one in enumerate(tables)}
    grads = [{one.name: whole((each.stride or 0, one.dim), seed + 7) for one in tables} for each in given]
    groups = build_groups(tables, world.size, world.local)
    results = world.lockstep().run(lambda rank: step(rank, groups, model, given[rank.rank], grads[rank.rank]))
    leaves = {name: weight.clone().requires_grad_() for name, weight in model.items()}
    dense = [pool(each, list(leaves.values())) for each in given]
    expected = [dict(zip(leaves, one.split([table.dim for table in tables], dim=1), strict=True)) for one in dense]
    for (outputs, _), wanted in zip(results, expected, strict=True):
        assert {name: part.tolist() for name, part in outputs.items()} == {
            name: part.tolist() for name, part in wanted.items()
        }
    sum((one[name] * grad[name]).sum() for one, grad in zip(expected, grads, strict=True) for name in leaves).backward()
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        assert sum(total[name] for _, total in results).tolist() == leaf.grad.tolist()


@given(models())
def test_every_rank_looks_up_exactly_its_shards(drawn: tuple[World, list[ShardedTable], list[KeyedJagged]]) -> None:
    world, tables, _ = drawn
    groups = build_groups(tables, world.size, world.local)
    for rank in range(world.size):
        found = [astuple(one) for group in groups for one in group.lookups(rank)]
        wanted = [
            (one.name, part.row_offset, part.rows, part.column_offset, part.columns)
            for one in tables
            for part in one.shards
            if part.rank == rank
        ]
        assert sorted(found) == sorted(wanted)


async def sizes_of(rank: Rank, groups: tuple[ShardedGroup, ...], given: KeyedJagged) -> list[Any]:
    """Everything that decides times: shapes and lengths."""
    found: list[Any] = []
    for group in groups:
        local = await group.input(rank, given)
        rows = local.stride or 0
        pooled = torch.zeros(rows, sum(one.columns for one in group.lookups(rank.rank)), device=rank.device)
        output = await group.forward(rank, pooled, local.batch_per_rank)
        back = await group.backward(rank, output, local.batch_per_rank)
        found += [
            local.keys,
            local.lengths.tolist(),
            local.values.shape,
            local.batch_per_rank,
            output.shape,
            back.shape,
        ]
        assert output.shape == (given.stride, group.width)
    return found


@given(models())
def test_without_values_lengths_shapes_calls_and_costs_are_the_same(
    drawn: tuple[World, list[ShardedTable], list[KeyedJagged]],
) -> None:
    world, tables, given = drawn
    groups = build_groups(tables, world.size, world.local)
    real, sizes = world.lockstep(), world.lockstep("meta")
    results = [one.run(lambda rank: sizes_of(rank, groups, given[rank.rank])) for one in (real, sizes)]
    assert results[0] == results[1]
    assert (real.log, real.kernels_by_rank) == (sizes.log, sizes.kernels_by_rank)


WORLD = World(2, 2)


def twrw(name: str, host: int, processor: bool = False) -> ShardedTable:
    shards = tuple(row_shards(5, [2 * host, 2 * host + 1], (0, 3)))
    return ShardedTable(
        name=name, rows=5, dim=3, sharding_type="table_row_wise", shards=shards, has_feature_processor=processor
    )


def test_a_feature_processor_on_one_host_sends_positions_from_every_rank() -> None:
    (group,) = build_groups([twrw("a", 0), twrw("b", 1, processor=True)], 4, 2)
    given = KeyedJagged(keys=("a", "b"), values=torch.tensor([4, 0, 4]), lengths=torch.tensor([1, 2]), stride=1)
    results = WORLD.lockstep().run(lambda rank: group.input(rank, given))
    assert [one.weights.tolist() for one in results] == [[], [0] * 4, [0] * 4, [1] * 4]


def test_tables_are_grouped_by_sharding_type_in_their_order() -> None:
    whole_table = TableShard(rank=3, row_offset=0, rows=7, column_offset=0, columns=2)
    alone = ShardedTable(name="c", rows=7, dim=2, sharding_type="table_wise", shards=(whole_table,))
    groups = build_groups([twrw("b", 1), alone, twrw("a", 0)], 4, 2)
    assert [group.sharding_type for group in groups] == ["table_row_wise", "table_wise"]
    assert [group.features for group in groups] == [("a", "b"), ("c",)]
    assert [[column.table for column in group.columns] for group in groups] == [["a", "b"], ["c"]]
    assert [(one.table, one.row_offset, one.rows) for one in groups[0].lookups(3)] == [("b", 3, 2)]


def test_labels_can_name_the_sharding_type() -> None:
    groups = build_groups([twrw("a", 0)], 4, 2, label="{sharding_type}.")
    given = KeyedJagged(keys=("a",), values=torch.tensor([4]), lengths=torch.tensor([1]), stride=1)
    world = WORLD.lockstep()

    async def program(rank: Rank) -> None:
        local = await groups[0].input(rank, given)
        pooled = torch.zeros(local.stride or 0, 3 * len(local.keys))
        await groups[0].backward(
            rank, await groups[0].forward(rank, pooled, local.batch_per_rank), local.batch_per_rank
        )

    world.run(program)
    labels = {call.label for issued in world.log.values() for call in issued}
    labels |= {label for issued in world.kernels_by_rank.values() for label, _ in issued}
    assert labels == {
        f"table_row_wise.{label}"
        for label in (
            "input_dist.bucketize",
            "input_dist.splits",
            "input_dist.lengths",
            "input_dist.values",
            "input_dist.recat",
            "output_dist.reduce_scatter",
            "output_dist.all_to_all",
            "output_dist.columns",
            "output_dist_backward.columns",
            "output_dist_backward.all_to_all",
            "output_dist_backward.all_gather",
        )
    }


def test_a_plan_says_what_the_tables_are() -> None:
    tables = [twrw("a", 0), twrw("b", 1, processor=True)]
    plan = [
        PlanRow(
            table=one.name,
            sharding_type=one.sharding_type,
            compute_kernel="fused",
            shard=index,
            rank=shard.rank,
            row_offset=shard.row_offset,
            column_offset=shard.column_offset,
            rows=shard.rows,
            columns=shard.columns,
            storage_bytes=0,
            perf_ms=0.0,
            ids_per_step=0.0,
        )
        for one in tables
        for index, shard in reversed(list(enumerate(one.shards)))
    ]
    assert tables_of_plan(plan, ["b"]) == tuple(tables)


def shard(**changes: int) -> TableShard:
    return replace(twrw("a", 0).shards[0], **changes)


BAD: dict[str, tuple[TableShard, ...]] = {
    "table 'a' (table_row_wise): rows 0 to 2 on rank 0, expected rows 0 to 3 on rank 0": (shard(rows=2),),
    "table 'a' (table_row_wise): a shard is missing, expected rows 3 to 5 on rank 1": (shard(),),
    "table 'a' (table_row_wise): a shard on rank 4, expected ranks 0 to 3": (shard(rank=4),),
    "table 'a' (table_row_wise): its shards hold columns none, expected each of 0 to 3 once": (),
    "table 'a' (table_row_wise): its shards hold columns 0 to 3, 0 to 3, expected each of 0 to 3 once": (
        *(2 * [*twrw("a", 0).shards]),
    ),
    "table 'a' (table_row_wise): rows 3 to 5 on rank 2, expected rows 3 to 5 on rank 1": (
        shard(),
        shard(rank=2, row_offset=3, rows=2),
    ),
}


@pytest.mark.parametrize("sentence", BAD)
def test_shards_that_are_not_laid_out_as_their_type_says_are_one_sentence(sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build_groups([replace(twrw("a", 0), shards=BAD[sentence])], 4, 2)


def test_a_missing_feature_is_named() -> None:
    (group,) = build_groups([twrw("a", 0)], 4, 2)
    given = KeyedJagged(keys=("x",), values=torch.tensor([4]), lengths=torch.tensor([1]), stride=1)
    with pytest.raises(ValueError, match=r"^KeyedJagged: no key 'a'; there are x$"):
        WORLD.lockstep().run(lambda rank: group.input(rank, given))


def test_rows_cut_over_a_pod_of_hosts_are_refused_and_none_is_dropped() -> None:
    pod = replace(twrw("a", 0), shards=tuple(row_shards(5, [0, 1, 2, 3], (0, 3))))
    sentence = "table 'a' (table_row_wise): rows 0 to 2 on rank 0, expected rows 0 to 3 on rank 0"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build_groups([pod], 4, 2)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_a_group_built_for_other_hosts_is_refused(way: str) -> None:
    (group,) = build_groups([replace(twrw("a", 0), shards=tuple(row_shards(5, [0, 1, 2, 3], (0, 3))))], 4, 4)
    sentence = "dim_sum_per_node has 1 items, expected one a host: 2; the rows of a table lie on the ranks of one host"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        WORLD.lockstep().run(lambda rank: getattr(group, way)(rank, torch.zeros(4, 3), [1] * 4))


@pytest.mark.parametrize("kind", ["table_wise", "row_wise", "table_row_wise"])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_pooled_embeddings_of_batches_that_differ_by_key_are_refused(kind: Any, way: str) -> None:
    ranks = {"table_wise": [1], "row_wise": [0, 1, 2, 3], "table_row_wise": [2, 3]}[kind]
    table = ShardedTable(name="a", rows=5, dim=3, sharding_type=kind, shards=tuple(row_shards(5, ranks, (0, 3))))
    (group,) = build_groups([table], 4, 2)
    sentence = "batch_per_rank has 0 items, expected one a rank: 4; batches that differ by key have no pooled exchange"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        WORLD.lockstep().run(lambda rank: getattr(group, way)(rank, torch.zeros(4, 3), ()))


def test_a_grid_takes_batches_that_differ_by_key() -> None:
    shards = (*row_shards(5, [0, 1], (0, 3)), *row_shards(5, [2, 3], (3, 3)))
    grid = ShardedTable(name="a", rows=5, dim=6, sharding_type="grid_shard", shards=shards)
    (group,) = build_groups([grid, replace(grid, name="b")], 4, 2)
    given = KeyedJagged.from_lengths_sync(
        ["a", "b"], torch.tensor([4, 0, 1]), torch.tensor([1, 1, 1]), stride_per_key_per_rank=[[2], [1]]
    )
    results = WORLD.lockstep().run(lambda rank: group.input(rank, given))
    assert [one.stride_per_key_per_rank for one in results] == [((2,) * 4, (1,) * 4)] * 4
    assert [one.values.tolist() for one in results] == [[0] * 4 + [1] * 4, [1] * 4] * 2


@pytest.mark.parametrize("batches", [(2, 2), (2, 1)])
def test_equal_batches_given_by_key_are_sent_as_batches_by_key(batches: tuple[int, int]) -> None:
    """What one rank's batches happen to be must not change which tensors it sends."""
    (group,) = build_groups([twrw("a", 0), twrw("b", 1)], 4, 2)
    given = KeyedJagged.from_lengths_sync(
        ["a", "b"],
        torch.zeros(sum(batches), dtype=torch.int64),
        torch.ones(sum(batches), dtype=torch.int64),
        stride_per_key_per_rank=[[batch] for batch in batches],
    )
    world = WORLD.lockstep()
    results = world.run(lambda rank: group.input(rank, given))
    assert [call.label for call in world.log[0]] == [
        f"input_dist.{name}" for name in ("splits", "lengths", "values", "strides")
    ]
    assert [one.stride_per_key_per_rank for one in results] == [((batches[rank // 2],) * 4,) for rank in range(4)]

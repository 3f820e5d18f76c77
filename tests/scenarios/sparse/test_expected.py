"""Expected traffic against ids that are drawn and counted by the shards that hold their rows, for every sharding type.

That count is held against what the exchange itself sends.
"""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import count
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.scenario import Ids, Interaction, Model, Scenario, Table
from scenarios.seam.rank import Rank
from scenarios.sharding_kind import ShardingKind, ShardingType
from scenarios.sparse import KeyedJagged, ShardedTable, build_groups
from scenarios.sparse.expected import InputTraffic, RankFlows, expected_traffic
from scenarios.sparse.tables import Layout, Piece, layouts
from scenarios.workloads.dlrm.batches import draw_bags
from scenarios.workloads.dlrm.ids.distribution import draws_of
from tests.lanes import examples
from tests.scenarios.sparse.test_groups import World, table
from tests.small import cluster, scenario

Floats = npt.NDArray[np.float64]
FLOWS = [field.name for field in fields(RankFlows)]
STEPS = 800
# Some ten thousand numbers are compared: one in 10,000 runs with other examples would have one beyond.
SIGMAS = 6


@dataclass(frozen=True)
class Drawn:
    """Tables with shards, and how their ids are drawn."""

    world: World
    shards: list[ShardedTable]
    training: Scenario

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.training.workload.tables

    def traffic(self) -> dict[str, InputTraffic]:
        draws = {one.name: draws_of(one, self.training.run.batch_size) for one in self.tables}
        found = layouts(self.shards, self.world.size, self.world.local)
        return {one.sharding_type: expected_traffic(one, draws, self.world.local) for one in found}

    def rows(self, number: int, steps: int) -> npt.NDArray[np.int64]:
        """How often each rank draws each row of a table, [steps, ranks, rows]."""
        rows = self.tables[number].rows
        return np.array(
            [
                [np.bincount(draw_bags(self.training, number, rank, step).ids, minlength=rows) for rank in self.ranks]
                for step in range(steps)
            ]
        )

    @property
    def ranks(self) -> range:
        return range(self.world.size)

    def matrices(self, steps: int) -> dict[str, tuple[Floats, Floats]]:
        """Ids [steps, sources, destinations] and lengths [sources, destinations] by sharding type."""
        found: dict[str, tuple[Floats, Floats]] = {}
        size, batch = self.world.size, self.training.run.batch_size
        for number, one in enumerate(self.shards):
            empty = np.zeros((steps, size, size)), np.zeros((size, size))
            ids, lengths = found.setdefault(one.sharding_type, empty)
            drawn = self.rows(number, steps)
            for shard in one.shards:
                sources = [shard.rank] if one.sharding_type == "data_parallel" else list(self.ranks)
                held = drawn[:, sources, shard.row_offset : shard.row_offset + shard.rows]
                ids[:, sources, shard.rank] += held.sum(2)
                lengths[sources, shard.rank] += batch
        return found


def flows(matrix: Floats, world: World) -> dict[str, Floats]:
    """What `RankFlows` are of [..., sources, destinations]."""
    hosts = np.arange(world.size) // world.local
    in_host = matrix * (hosts[:, None] == hosts)
    return {
        "sent": matrix.sum(-1),
        "sent_in_host": in_host.sum(-1),
        "kept": np.diagonal(matrix, axis1=-2, axis2=-1),
        "received": matrix.sum(-2),
        "received_in_host": in_host.sum(-2),
    }


@st.composite
def random_tables(draw: st.DrawFn, shards: Sequence[ShardedTable]) -> tuple[Table, ...]:
    made = []
    for one in shards:
        kind = draw(st.sampled_from(["fixed", "poisson"]))
        ids = draw(st.sampled_from([Ids(), *(Ids(kind="zipf", exponent=s, order=o) for s, o in SKEWED)]))
        length = draw(st.integers(1, 3) if kind == "fixed" else st.floats(0.5, 3))
        made.append(model_table(one, ids, length, kind))
    return tuple(made)


SKEWED: list[tuple[float, Any]] = [(0.5, "shuffled"), (1.05, "shuffled"), (1.05, "by_frequency")]


def model_table(one: ShardedTable, ids: Ids, length: float, kind: str) -> Table:
    return Table(
        name=one.name,
        rows=one.rows,
        dim=one.dim,
        ids_per_sample=length,
        ids_per_sample_kind=kind,  # type: ignore[arg-type]
        ids=ids,
        sharding=(cast(ShardingType, one.sharding_type),),
    )


def training(world: World, tables: tuple[Table, ...], batch_size: int) -> Scenario:
    model = Model(dense_features=1, bottom=(1,), interaction=Interaction(kind="cat"), top=(1,), tables=tables)
    return scenario(cluster(world.hosts, world.local), model=model, batch_size=batch_size)


@st.composite
def plays(draw: st.DrawFn) -> Drawn:
    world = World(draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    shards = [draw(table(world, f"t{index}")) for index in range(draw(st.integers(1, 4)))]
    return Drawn(world, shards, training(world, draw(random_tables(shards)), draw(st.integers(1, 12))))


@examples(30)
@given(plays())
def test_ids_are_counted_where_the_exchange_sends_them(drawn: Drawn) -> None:
    bags = [[draw_bags(drawn.training, number, rank, 0) for number in range(len(drawn.tables))] for rank in drawn.ranks]
    features = [
        KeyedJagged(
            keys=tuple(one.name for one in drawn.tables),
            values=torch.from_numpy(np.concatenate([bag.ids for bag in mine])),
            lengths=torch.from_numpy(np.concatenate([bag.lengths for bag in mine])),
            stride=drawn.training.run.batch_size,
        )
        for mine in bags
    ]
    groups = build_groups(drawn.shards, drawn.world.size, drawn.world.local, label="{sharding_type}.")
    played = drawn.world.lockstep()

    async def exchange(rank: Rank) -> list[KeyedJagged]:
        return [await group.input(rank, features[rank.rank]) for group in groups]

    looked_up = played.run(exchange)
    for index, group in enumerate(groups):
        ids, lengths = drawn.matrices(1)[group.sharding_type]
        assert [len(mine[index].values) for mine in looked_up] == ids[0].sum(0).tolist()
        assert [len(mine[index].lengths) for mine in looked_up] == lengths.sum(0).tolist()
        for name, wanted in (("values", ids[0]), ("lengths", lengths)):
            label = f"{group.sharding_type}.input_dist.{name}"
            calls = [call for rank in drawn.ranks for call in played.log[rank] if call.label == label]
            moved = [[size // call.element_size for size in call.send_bytes] for call in calls]
            nothing = group.sharding_type == "data_parallel" or drawn.world.size == 1
            assert moved == ([] if nothing else wanted.tolist())


@pytest.mark.slow
@examples(25, derandomize=True)
@given(plays())
def test_drawn_steps_have_the_expected_means_and_deviations(drawn: Drawn) -> None:
    found = drawn.matrices(STEPS)
    for sharding_type, traffic in drawn.traffic().items():
        ids, lengths = found[sharding_type]
        for name, counted in flows(ids, drawn.world).items():
            assert_drawn_from(counted, getattr(traffic.ids, name), getattr(traffic.deviation, name))
        for name, counted in flows(lengths, drawn.world).items():
            assert getattr(traffic.lengths, name).tolist() == counted.tolist()


def assert_drawn_from(found: Floats, mean: Floats, deviation: Floats) -> None:
    """Whether `found` [steps, ranks] is: what cannot vary must be met, and what is too rare to say is left out."""
    pieces, variance = 3, deviation**2  # of a table on one rank at most
    assert np.abs(found - mean)[:, deviation == 0].max(initial=0) < 1e-9
    enough = STEPS * variance > 200 * pieces**2
    found, mean, variance = found[:, enough], mean[enough], variance[enough]
    assert np.abs((found.mean(0) - mean) / np.sqrt(variance / STEPS)).max(initial=0) < SIGMAS
    # The fourth cumulant is that of `pieces` times a count of independent ids at most.
    squares = ((found - mean) ** 2).mean(0) / variance
    assert np.abs((squares - 1) / np.sqrt((2 + pieces**2 / variance) / STEPS)).max(initial=0) < SIGMAS


@given(plays())
def test_expected_traffic_is_conserved_and_an_outer_product(drawn: Drawn) -> None:
    for sharding_type, traffic in drawn.traffic().items():
        ids, size, local = traffic.ids, drawn.world.size, drawn.world.local
        assert ids.sent.shape == traffic.shares.shape == (size,)
        assert ids.sent.sum() == pytest.approx(ids.received.sum())
        if sharding_type == "data_parallel":
            assert traffic.shares.tolist() == [0] * size
            assert [getattr(ids, name).tolist() for name in FLOWS] == [ids.sent.tolist()] * 5
            continue
        for name, counted in flows(np.outer(ids.sent, traffic.shares), World(size // local, local)).items():
            assert getattr(ids, name) == pytest.approx(counted)


@given(plays())
def test_fixed_lengths_leave_nothing_to_chance_but_the_block(drawn: Drawn) -> None:
    fixed = {one.sharding_type for one in drawn.shards} - {
        one.sharding[0] for one in drawn.tables if one.ids_per_sample_kind == "poisson"
    }
    for sharding_type, traffic in drawn.traffic().items():
        if sharding_type in fixed:
            ids, _ = drawn.matrices(1)[sharding_type]
            assert traffic.ids.sent.tolist() == ids[0].sum(1).tolist()
            assert traffic.deviation.sent.tolist() == [0] * drawn.world.size
        if sharding_type in fixed & {"table_wise", "column_wise", "table_column_wise", "data_parallel"}:
            counted = flows(ids[0], drawn.world)
            assert {name: getattr(traffic.ids, name).tolist() for name in FLOWS} == {
                name: counted[name].tolist() for name in FLOWS
            }


def test_two_hosts_of_two_by_hand() -> None:
    """Six ids a rank of a table of 5 rows, cut into 3 and 2 on host 1."""
    piece = Piece(table="a", feature="a", rows=5, column_offset=0, columns=4)
    layout = Layout(
        sharding_type=ShardingKind.TABLE_ROW_WISE,
        span=2,
        buckets=2,
        pieces=((), (piece,)),
        has_feature_processor=False,
    )
    one = Table(name="a", rows=5, dim=4, ids_per_sample=3, sharding=("table_row_wise",))
    traffic = expected_traffic(layout, {"a": draws_of(one, batch_size=2)}, 2)
    assert {name: getattr(traffic.ids, name).round(12).tolist() for name in FLOWS} == {
        "sent": [6, 6, 6, 6],
        "sent_in_host": [0, 0, 6, 6],
        "kept": [0, 0, 3.6, 2.4],
        "received": [0, 0, 14.4, 9.6],
        "received_in_host": [0, 0, 7.2, 4.8],
    }
    variance = {name: (getattr(traffic.deviation, name) ** 2).round(12).tolist() for name in FLOWS}
    assert variance == {
        "sent": [0, 0, 0, 0],
        "sent_in_host": [0, 0, 0, 0],
        "kept": [0, 0, 1.44, 1.44],
        "received": [0, 0, 5.76, 5.76],
        "received_in_host": [0, 0, 2.88, 2.88],
    }
    assert traffic.lengths.received.tolist() == [0, 0, 8, 8]
    assert traffic.lengths.sent.tolist() == [4, 4, 4, 4]
    assert traffic.shares.round(12).tolist() == [0, 0, 0.6, 0.4]


FILES = count()


@examples(60)
@given(data=st.data())
def test_ids_of_a_file_are_met_exactly_over_all_its_steps(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)))
    one = data.draw(table(world, "t"))
    bags = data.draw(st.lists(st.lists(st.integers(0, one.rows - 1), max_size=3), min_size=1, max_size=6).filter(any))
    path = tmp_path_factory.getbasetemp() / f"expected{next(FILES)}.csv"
    path.write_text("".join(" ".join(map(str, bag)) + "\n" for bag in bags))
    tables = (model_table(one, Ids(kind="file", path=path), 1.0, "poisson"),)
    drawn = Drawn(world, [one], training(world, tables, data.draw(st.integers(1, 4))))
    ids, lengths = drawn.matrices(len(bags))[one.sharding_type]
    traffic = drawn.traffic()[one.sharding_type]
    counted = flows(ids, world)
    if one.sharding_type != "data_parallel":
        assert traffic.ids.received == pytest.approx(counted["received"].mean(0))
        assert traffic.deviation.received == pytest.approx(counted["received"].std(0), abs=1e-9)
    for name in ("sent", "received"):
        assert getattr(traffic.ids, name).mean() == pytest.approx(counted[name].mean())
    assert traffic.deviation.sent == pytest.approx(np.full(world.size, counted["sent"].std()), abs=1e-9)
    assert traffic.lengths.received.tolist() == lengths.sum(0).tolist()


@pytest.mark.parametrize("local", [3, 5, 16])
def test_hosts_that_do_not_fit_are_one_sentence(local: int) -> None:
    sentence = f"local_world_size = {local}: expected a divisor of 8 ranks that divides the 4 of a table_row_wise table"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        expected_traffic(layout_of(ShardingKind.TABLE_ROW_WISE, 4, 4, ((), ())), {}, local)


def layout_of(kind: ShardingKind, span: int, buckets: int, pieces: tuple[tuple[Piece, ...], ...]) -> Layout:
    return Layout(
        sharding_type=kind,
        span=span,
        buckets=buckets,
        pieces=pieces,
        has_feature_processor=False,
    )


@pytest.mark.parametrize(
    ("kind", "span", "buckets"),
    [
        (ShardingKind.TABLE_WISE, 1, 1),
        (ShardingKind.TABLE_ROW_WISE, 8, 8),
        (ShardingKind.ROW_WISE, 131_072, 131_072),
    ],
)
def test_131072_ranks_need_vectors_only(kind: ShardingKind, span: int, buckets: int) -> None:
    size, local = 131_072, 8
    one = Table(name="a", rows=10**9, dim=4, ids_per_sample=10.0, ids=SHUFFLED, sharding=("row_wise",))
    piece = Piece(table="a", feature="a", rows=one.rows, column_offset=0, columns=4)
    layout = layout_of(kind, span, buckets, ((piece,), *[()] * (size // span - 1)))
    tracemalloc.start()
    try:
        traffic = expected_traffic(layout, {"a": draws_of(one, batch_size=512)}, local)
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()
    assert traffic.ids.sent.tolist() == [5120] * size
    assert traffic.ids.received.sum() == pytest.approx(5120 * size)
    assert traffic.ids.received_in_host.sum() == pytest.approx(5120 * local)
    assert traffic.ids.sent_in_host.sum() == pytest.approx(5120 * local)
    assert traffic.ids.kept.sum() == pytest.approx(5120)


SHUFFLED = Ids(kind="zipf", exponent=1.05)

"""Expected features travel as drawn ones do: the same verbs in the same order, with their sizes on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.scenario import Ids, Interaction, Model, Scenario, Table
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.sharding_kind import ShardingType
from scenarios.sparse import KeyedJagged, ShardedTable, build_groups
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.workloads.dlrm.batches import draw_bags
from scenarios.workloads.dlrm.ids.distribution import TableDraws
from tests.lanes import examples
from tests.lockstep import Lockstep
from tests.scenarios.sparse.test_groups import World, table
from tests.small import cluster, scenario

STEPS = 60
# Some ten thousand numbers are compared: one in 10,000 runs with other examples would have one beyond.
SIGMAS = 6
LABEL = "{sharding_type}."
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """Tables with shards, and how their ids are drawn."""

    world: World
    shards: list[ShardedTable]
    training: Scenario

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.training.workload.tables

    @property
    def ranks(self) -> range:
        return range(self.world.size)


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


def bags(drawn: Drawn, rank: int, step: int) -> KeyedJagged:
    found = [draw_bags(drawn.training, number, rank, step) for number in range(len(drawn.tables))]
    return KeyedJagged(
        keys=tuple(one.name for one in drawn.tables),
        values=torch.from_numpy(np.concatenate([bag.ids for bag in found])),
        lengths=torch.from_numpy(np.concatenate([bag.lengths for bag in found])),
        stride=drawn.training.run.batch_size,
        ids_per_key=tuple(len(bag.ids) for bag in found),  # as a loader counts them
    )


def play_drawn(drawn: Drawn, step: int) -> tuple[Lockstep, list[list[list[int]]]]:
    """What was called, and ids by rank, group and key."""
    groups = build_groups(drawn.shards, drawn.world.size, drawn.world.local, label=LABEL)
    played = drawn.world.lockstep()

    async def exchange(rank: Rank) -> list[list[int]]:
        return [(await group.input(rank, bags(drawn, rank.rank, step))).length_per_key() for group in groups]

    return played, played.run(exchange)


def play_expected(drawn: Drawn) -> tuple[Lockstep, list[list[list[float]]]]:
    batch_size = drawn.training.run.batch_size
    draws = {one.name: TableDraws(one, batch_size) for one in drawn.tables}
    groups = build_groups(drawn.shards, drawn.world.size, drawn.world.local, label=LABEL)
    inputs = [ExpectedInput(group.layout, draws, group.label) for group in groups]
    features = ExpectedJagged(
        keys=tuple(draws), ids=tuple(float(one.mean()[0]) for one in draws.values()), stride=batch_size
    )
    played = drawn.world.lockstep("meta")

    async def exchange(rank: Rank) -> list[list[float]]:
        rank.world = Group("world", rank.world.ranks, (1,) * rank.world.size)
        return [(await one(rank, features)).length_per_key() for one in inputs]

    return played, played.run(exchange)


def bytes_of(kernel: Kernel) -> float:
    return kernel.bytes_read + kernel.bytes_written


@examples(40)
@given(plays())
def test_verbs_are_those_of_drawn_ids_and_what_cannot_vary_has_their_sizes(drawn: Drawn) -> None:
    (real, _), (expected, _) = play_drawn(drawn, 0), play_expected(drawn)
    for rank in drawn.ranks:
        ours, theirs = expected.log.get(rank, []), real.log.get(rank, [])
        assert [(call.op, call.label) for call in ours] == [(call.op, call.label) for call in theirs]
        for own, other in zip(ours, theirs, strict=True):
            if own.label.endswith((".splits", ".lengths")):
                assert (own.bytes_in, own.bytes_out, own.bytes_sent) == (
                    other.bytes_in,
                    other.bytes_out,
                    other.bytes_sent,
                )
                assert own.expected_send == pytest.approx(other.send_bytes)
        labels = [(label, kernel.kind, kernel.launches) for label, kernel in expected.kernels_by_rank.get(rank, [])]
        assert labels == [(label, kernel.kind, kernel.launches) for label, kernel in real.kernels_by_rank.get(rank, [])]


@examples(12, derandomize=True)
@given(plays())
def test_sizes_are_those_of_drawn_ids_on_average(drawn: Drawn) -> None:
    played = [play_drawn(drawn, step) for step in range(STEPS)]
    expected, ids = play_expected(drawn)
    for rank in drawn.ranks:
        for group in range(len(ids[rank])):
            drawn_ids = np.array([found[rank][group] for _, found in played], float).reshape(STEPS, -1)
            near(drawn_ids, np.array(ids[rank][group]), unit=3)
        for place, call in enumerate(expected.log.get(rank, [])):
            sent = np.array([one.log[rank][place].send_bytes for one, _ in played], float)
            near(sent, np.array(call.expected_send), unit=3 * 8)
        for place, (_, kernel) in enumerate(expected.kernels_by_rank.get(rank, [])):
            moved = np.array([[bytes_of(one.kernels_by_rank[rank][place][1])] for one, _ in played])
            near(moved, np.array([bytes_of(kernel)]), unit=8 * 8)


def near(found: Floats, mean: Floats, unit: float = 1.0) -> None:
    """Whether `found` [steps, numbers] may have that mean; an id more or less is `unit` at most.

    What never differed in all steps may be rare, but of ten that are expected one comes (but for 1 in 20,000).
    """
    deviation, off = found.std(axis=0), np.abs(found.mean(axis=0) - mean)
    often = (found != np.median(found, axis=0)).sum(axis=0) >= STEPS // 4
    assert (off[often] <= SIGMAS * deviation[often] / np.sqrt(STEPS) + unit / 2).all()
    assert (off[deviation == 0] <= unit * (0.5 + 10 / STEPS)).all()

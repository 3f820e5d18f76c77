"""Weighted bags, sequences and pipelined steps: as in plain torch whatever the sharding, and alike in both worlds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.scenario import (
    Bag,
    Launching,
    Optimizer,
    Pipeline,
    Scenario,
    ShardingType,
    Table,
)
from scenarios.planner.plan import plan_tables
from scenarios.seam.trace import Recording
from scenarios.sharding_kind import DISTINCT_TYPES, SEQUENCE_TYPES
from scenarios.workloads.dlrm.batches import draw_bags
from scenarios.workloads.dlrm.dense import Embeddings
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.sim.test_dlrm_steps import ALL, losses, play_ready, training
from tests.small import GPU, change, cluster, model_of, with_model

LONGEST = 2
BIG = dataclasses.replace(GPU, memory_bytes=1 << 40)


class Attentive(nn.Module):
    """Looks at each table with a query made of the dense features, and at a sequence's real places only."""

    def __init__(self, dense_features: int, dims: dict[str, int]) -> None:
        super().__init__()
        self.queries = nn.ModuleDict({name: nn.Linear(dense_features, dim) for name, dim in dims.items()})
        self.score = nn.Linear(sum(dims.values()), 1)

    def forward(self, dense: Tensor, embeddings: Embeddings, labels: Tensor) -> Tensor:
        found = []
        for name, rows in embeddings.items():
            query = self.queries[name](dense)
            if name not in embeddings.lengths:
                found.append(rows * query)
                continue
            real = torch.arange(rows.shape[1])[None] < embeddings.lengths[name][:, None]
            scores = (rows @ query[:, :, None]).squeeze(2).masked_fill(~real, -1e4)
            found.append((torch.softmax(scores, 1)[:, :, None] * rows).sum(1))
        return functional.binary_cross_entropy_with_logits(self.score(torch.cat(found, 1)).squeeze(1), labels)


def mix(bags: tuple[Bag, ...], types: tuple[ShardingType, ...], optimizer: str = "sgd", **changes: Any) -> Scenario:
    """`training` with tables that take bags and sharding types in turn; sequences those that they can have."""
    made = training(types, optimizer=optimizer, **changes)
    tables = tuple(_as(bags[number % len(bags)], table) for number, table in enumerate(made.workload.tables))
    own = Optimizer(kind=optimizer, learning_rate=0.5)  # type: ignore[arg-type]
    model = dataclasses.replace(
        model_of(made),
        tables=tables,
        optimizer=own,
        dense=f"{__name__}:Attentive",
        bottom=(),
        top=(),
    )
    return change(made, model=model)


def _as(bag: Bag, table: Table) -> Table:
    (kind,) = table.sharding
    if bag == "distinct":
        return dataclasses.replace(table, index_dedup=True, sharding=(kind if kind in DISTINCT_TYPES else "row_wise",))
    if bag != "sequence":
        return dataclasses.replace(table, weighted=bag == "weighted")
    return dataclasses.replace(table, sequence=LONGEST, sharding=(kind if kind in SEQUENCE_TYPES else "row_wise",))


SEQUENCES: tuple[ShardingType, ...] = ("row_wise", "column_wise", "table_wise", "data_parallel")


def test_ids_that_are_named_often_travel_once() -> None:
    """Values that leave a rank are its batch's distinct ids of each table, and as many rows come home."""
    made = mix(("distinct",), ("row_wise",), batch_size=64)
    recording = play_ready(made)
    world, dim = made.cluster.world_size, made.workload.tables[0].dim
    for rank in range(world):
        drawn = [draw_bags(made, number, rank, 0).ids for number in range(len(made.workload.tables))]
        distinct = sum(len(set(ids.tolist())) for ids in drawn)
        assert distinct < sum(len(ids) for ids in drawn)
        of_rank = [one for one in recording.spans if one.rank == rank and one.step == 0]
        (sent,) = (one for one in of_rank if one.label.endswith("row_wise.input_dist.values"))
        (home,) = (one for one in of_rank if one.label.endswith("sequence_output_dist.all_to_all"))
        assert sent.bytes_in == 8 * distinct
        assert home.bytes_out == 4 * dim * distinct


def calls(recording: Recording) -> list[tuple[object, ...]]:
    spans = sorted(recording.spans, key=lambda span: (span.rank, span.stream, span.sequence))
    return [(one.rank, one.stream, one.step, one.kind, one.label, one.bytes_in, one.flops) for one in spans]


PIPELINE = Pipeline(kind="sparse_dist")
EVERY: tuple[Bag, ...] = ("pooled", "sequence", "weighted")


def test_the_next_batch_is_exchanged_during_a_step_with_all_sizes_in_one_call() -> None:
    made = mix(EVERY, ALL, batch_size=64, payload="sizes", library="nccl")
    steps = {}
    for kind in ("none", "sparse_dist"):
        chosen = change(made, pipeline=Pipeline(kind=kind))  # type: ignore[arg-type]
        spans = play_ready(chosen).spans
        steps[kind] = [one.end_ns - one.start_ns for one in spans if one.kind == "step" and one.rank == 0]
        told = [one for one in spans if one.rank == 0 and one.label.endswith(".splits")]
        if kind == "none":
            assert [one.step for one in told].count(0) == len({one.label for one in told}) > 1
    assert {one.stream for one in told} == {"data_dist"}
    assert [one.step for one in told] == [-1, 0, 1, 2]
    assert max(steps["sparse_dist"]) < min(steps["none"])
    assert max(steps["sparse_dist"]) < 1.1 * min(steps["sparse_dist"])


def test_narrow_ids_train_the_same_model() -> None:
    made = mix(EVERY, ALL)
    narrow = with_model(made, ids_dtype="int32", lengths_dtype="int32")
    assert losses(play_ready(narrow)) == losses(play_ready(made))


@pytest.mark.parametrize("ranks", ["each", "alike"])
def test_narrow_ids_and_lengths_are_half_as_many_bytes(ranks: Any) -> None:
    made = mix(EVERY, ALL, batch_size=512, payload="sizes", fidelity="links", library="nccl", ranks=ranks)
    made = dataclasses.replace(made, cluster=cluster(4, 2, gpu=BIG))
    sizes, memory = {}, {}
    for dtype in ("int32", "int64"):
        model = dataclasses.replace(model_of(made), ids_dtype=dtype, lengths_dtype=dtype)  # type: ignore[arg-type]
        recording = simulate(narrow := change(made, model=model), DlrmProgram(narrow))
        moved = [one for one in recording.spans if one.label.endswith((".lengths", ".values")) and one.step == 0]
        sizes[dtype] = sorted((one.rank, one.label, one.bytes_in) for one in moved)
        memory[dtype] = sum(row.size_bytes for row in recording.memory if row.part == "sparse buffers")
    for narrow_call, wide_call in zip(sizes["int32"], sizes["int64"], strict=True):
        assert narrow_call[:2] == wide_call[:2]
        assert 2 * narrow_call[2] == pytest.approx(wide_call[2], abs=1)  # expected sizes are rounded to bytes
    assert memory["int32"] < memory["int64"]


def test_graphs_launch_at_once() -> None:
    """With launches that take long, a step is as long as all of them together; with graphs it does without."""
    slow = dataclasses.replace(GPU, launch_ns=200_000)
    made = training(ALL, payload="sizes", library="nccl")
    made = dataclasses.replace(made, cluster=cluster(2, 2, gpu=slow))
    steps = {}
    for on in (False, True):
        chosen = change(made, launching=Launching(cuda_graphs=on))
        spans = play_ready(chosen).spans
        steps[on] = min(one.end_ns - one.start_ns for one in spans if one.kind == "step")
    quick = dataclasses.replace(made, cluster=cluster(2, 2, gpu=dataclasses.replace(GPU, launch_ns=0)))
    spans = play_ready(quick).spans
    assert steps[True] == min(one.end_ns - one.start_ns for one in spans if one.kind == "step")
    assert steps[False] > 5 * steps[True]


def test_planned_time_grows_from_pooled_to_weighted_to_sequence_tables() -> None:
    """A sequence's rows travel one by one; weights are read as well."""
    perf = {}
    for bag in ("pooled", "weighted", "sequence"):
        made = mix((bag,), ("table_wise",))  # type: ignore[arg-type]
        perf[bag] = sum(row.perf_ms for row in plan_tables(made).rows)
    assert perf["pooled"] < perf["weighted"] < perf["sequence"]

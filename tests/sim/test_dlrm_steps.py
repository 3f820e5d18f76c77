"""A training step against plain torch in one process, whatever the sharding; and its times against its payload."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

import pytest
import torch
from torch import Tensor

from scenarios.config.scenario import (
    Buckets,
    Compression,
    Ids,
    Interaction,
    Model,
    Optimizer,
    Scenario,
    ShardingType,
    Table,
)
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import Recording
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.batches import draw_bags, draw_dense, draw_weights, initial_rows
from scenarios.workloads.dlrm.dense import build_dense
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.small import GPU, change, cluster, model_of, scenario

CPU = torch.device("cpu")
# Losses of float32 sums in different orders: some hundred additions of rounding errors of 6e-8 each, relative.
TOLERANCE = 1e-5
Kind = Literal["cat", "dot", "dcn"]


def tables(*types: ShardingType, dim: int = 8) -> tuple[Table, ...]:
    """Four tables that take the sharding types in turn; one jagged, one with fewer rows than ranks."""
    shapes: tuple[tuple[int, float, Literal["fixed", "poisson"]], ...] = (
        (40, 2.0, "fixed"),
        (3, 1.0, "fixed"),
        (57, 1.5, "poisson"),
        (16, 3.0, "fixed"),
    )
    return tuple(
        Table(
            name=f"t{number}",
            rows=rows,
            dim=dim,
            ids_per_sample=ids,
            ids_per_sample_kind=kind,
            ids=Ids(kind="zipf", exponent=1.1),
            sharding=(types[number % len(types)],),
        )
        for number, (rows, ids, kind) in enumerate(shapes)
    )


def training(
    types: tuple[ShardingType, ...], kind: Kind = "dcn", optimizer: str = "sgd", dim: int = 8, **changes: object
) -> Scenario:
    model = Model(
        dense_features=5,
        bottom=(16, dim),
        interaction=Interaction(kind=kind, layers=2, low_rank=3),
        top=(12, 1),
        tables=tables(*types, dim=dim),
        optimizer=Optimizer(kind=optimizer, learning_rate=0.5),  # type: ignore[arg-type]
    )
    base = scenario(cluster(2, 2), model=model, batch_size=6, steps=3, buckets=Buckets(first_bytes=64, cap_bytes=256))
    return change(base, **changes)  # type: ignore[arg-type]


def play_ready(made: Scenario) -> Recording:
    return simulate(made, DlrmProgram(made))


def losses(recording: Recording) -> list[float]:
    """Of the global batch, by step."""
    found: dict[int, list[float]] = {}
    for metric in recording.metrics:
        found.setdefault(metric.step, []).append(metric.value)
    return [sum(values) / len(values) for _, values in sorted(found.items())]


class Looked(dict[str, Tensor]):
    """Embeddings as a dense part gets them."""

    def __init__(self) -> None:
        self.lengths: dict[str, Tensor] = {}


def _keys(table: Table) -> enumerate[Table]:
    return enumerate(table.by_feature)


class Reference:
    """One process, all tables whole, the global batch at once; torch's own look-up, autograd and dense optimizers."""

    def __init__(self, training: Scenario) -> None:
        self.training, self.model = training, model_of(training)
        self.module = build_dense(training).build(CPU)
        self.weights = [
            initial_rows(number, training.run.seed, range(table.rows), range(table.dim), device=CPU).requires_grad_()
            for number, table in enumerate(self.model.tables)
        ]
        self.by_element = self.model.optimizer.state == "element"
        self.squares = [torch.zeros_like(weight if self.by_element else weight[:, :1]) for weight in self.weights]
        self.is_adagrad = self.model.optimizer.kind == "adagrad"
        make = torch.optim.Adagrad if self.is_adagrad else torch.optim.SGD
        self.dense: torch.optim.Optimizer = make(self.module.parameters(), lr=self.model.optimizer.learning_rate)

    def losses(self) -> list[float]:
        return [self.step(step) for step in range(self.training.run.steps)]

    def step(self, step: int) -> float:
        ranks = range(self.training.cluster.world_size)
        batches = [draw_dense(self.training, self.model, rank, step, device=CPU) for rank in ranks]
        tables = self.look_up_all(ranks, step)
        dense, labels = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("features", "labels"))
        loss = self.module(dense, tables, labels)
        self.dense.zero_grad()
        for weight in self.weights:
            weight.grad = None
        loss.backward()
        self.dense.step()
        self.update_tables()
        return loss.item()

    def look_up_all(self, ranks: Iterable[int], step: int) -> Looked:
        """The embeddings of these ranks' batches, by feature."""
        found = Looked()
        keys = ((number, place, one) for number, table in enumerate(self.model.tables) for place, one in _keys(table))
        for number, place, feature in keys:
            bags = [bag for rank in ranks for bag in self.bags(number, rank, step, place)]
            found[feature.name] = torch.stack([self.look_up(number, *bag) for bag in bags])
            if feature.sequence:
                found.lengths[feature.name] = torch.tensor([len(ids) for ids, _ in bags])
        return found

    def bags(self, number: int, rank: int, step: int, feature: int = 0) -> list[tuple[Tensor, Tensor]]:
        """Ids and their weights, by sample."""
        drawn = draw_bags(self.training, number, rank, step, feature=feature)
        weights = torch.ones(len(drawn.ids))
        if self.model.tables[number].weighted:
            given = draw_weights(self.training, number, rank, step, len(drawn.ids), feature=feature)
            weights = torch.from_numpy(given)
        lengths = drawn.lengths.tolist()
        return list(zip(torch.from_numpy(drawn.ids).split(lengths), weights.split(lengths), strict=True))

    def look_up(self, number: int, ids: Tensor, weights: Tensor) -> Tensor:
        rows, longest = self.weights[number][ids], self.model.tables[number].sequence
        if not longest:
            return (rows * weights[:, None]).sum(0)
        return torch.cat([rows[:longest], rows.new_zeros(max(0, longest - len(ids)), rows.shape[1])])

    @torch.no_grad()
    def update_tables(self) -> None:
        for weight, square in zip(self.weights, self.squares, strict=True):
            if weight.grad is None:  # of a table that the dense part does not use
                continue
            squares = weight.grad.square()
            square.add_(squares if self.by_element else squares.mean(dim=1, keepdim=True))
            scale = 1 / (square.sqrt() + 1e-10) if self.is_adagrad else 1.0
            weight.sub_(self.model.optimizer.learning_rate * weight.grad * scale)


ALL: tuple[ShardingType, ...] = ("data_parallel", "table_wise", "row_wise", "table_row_wise")
MORE: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid_shard", "table_row_wise")


def test_tables_may_be_wider_than_exchanged_embeddings() -> None:
    """Rows of float32, looked up and updated as such; between ranks, and in the dense part, halves."""
    made = training(ALL)
    gpu = dataclasses.replace(GPU, flops_per_s={"float32": 1e13, "float16": 1e14})
    made = dataclasses.replace(made.with_run(payload="sizes"), cluster=cluster(2, 2, gpu=gpu))
    sent = {}
    for dtype, rows in (("float32", "float32"), ("float16", "float32"), ("float16", "float16")):
        model = dataclasses.replace(model_of(made), dtype=dtype, embedding_dtype=rows)  # type: ignore[arg-type, type-var]
        program = DlrmProgram(change(made, model=model))
        spans = simulate(program.scenario, program).spans
        sent[dtype, rows] = sum(one.bytes_in for one in spans if "output_dist" in one.label)
        weights = {row.part: row.size_bytes for row in program.memory if row.rank == 0}["embedding weights"]
        assert weights == pytest.approx({"float32": 4, "float16": 2}[rows] * 8 * _rows_of(program), abs=8)
    assert sent["float16", "float32"] == sent["float16", "float16"] == sent["float32", "float32"] / 2


def _rows_of(program: DlrmProgram) -> int:
    return sum(row.rows for row in program.plan if row.rank == 0)


def test_the_loss_falls() -> None:
    made = training(("data_parallel",), "cat", batch_size=64, steps=40, seed=2)
    found = losses(play_ready(made))
    assert sum(found[-5:]) < 0.9 * sum(found[:5])


@pytest.mark.parametrize(
    ("kind", "library", "fidelity"),
    [
        ("batched_powersgd", "gloo", "links"),
        ("batched_powersgd", "nccl", "flows"),
        ("layerwise_powersgd", "nccl", "links"),
        *(
            pytest.param("none", library, fidelity, marks=pytest.mark.slow)
            for library in ("gloo", "nccl")
            for fidelity in ("flows", "links")
        ),
    ],
)
def test_times_do_not_depend_on_the_payload(kind: str, library: str, fidelity: str) -> None:
    compression = Compression(kind=kind, start_powerSGD_iter=2, min_compression_rate=1)  # type: ignore[arg-type]
    made = training(ALL, library=library, fidelity=fidelity, compression=compression)
    with_values = play_ready(made)
    sizes = made.with_run(payload="sizes")
    without = play_ready(sizes)
    assert without.spans == with_values.spans
    assert without.links == with_values.links
    assert with_values.metrics
    assert not without.metrics


def test_compression_starts_at_its_iteration_after_plain_steps() -> None:
    compression = Compression(kind="batched_powersgd", start_powerSGD_iter=2)
    made = training(ALL, compression=compression)
    spans = [span for span in play_ready(made).spans if span.stream == "dense.gradients"]
    vanilla = {span.step for span in spans if span.label == "powersgd.vanilla"}
    compressed = {span.step for span in spans if span.label == "powersgd.P"}
    assert (vanilla, compressed) == ({0, 1}, {2})


def test_gradients_are_reduced_while_the_backward_goes_on() -> None:
    made = training(ALL)
    spans = [span for span in play_ready(made).spans if (span.rank, span.step) == (0, 0)]
    first = min(span.start_ns for span in spans if span.stream == "dense.gradients")
    last = max(span.end_ns for span in spans if span.label.startswith("dense.backward"))
    assert first < last


def test_a_model_too_large_for_a_gpu_is_an_error_with_figures() -> None:
    small = dataclasses.replace(GPU, memory_bytes=600_000, context_bytes=1, fragmentation=0.0)
    made = training(("data_parallel",), batch_size=2000)
    made = dataclasses.replace(made, cluster=cluster(2, 2, gpu=small))
    with pytest.raises(ScenarioError) as caught:
        build(made)
    assert str(caught.value) == (
        "test.toml: cluster.gpu.memory = '586 KiB': expected at least 3.51 MiB, which rank 0 needs;"
        " its largest part is activations cross with 984 KiB: expected a smaller batch_size, or activation"
        " checkpointing, or a profile with more memory"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", ["", "float32"])
@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "adagrad"])
def test_half_precision_trains_without_nan(dtype: str, optimizer: str, rows: str) -> None:
    """Adagrad's squares and its epsilon are below what float16 has: its state is float32."""
    made = training(ALL, optimizer=optimizer)
    gpu = dataclasses.replace(GPU, flops_per_s={"float32": 1e13, dtype: 1e14})
    own = Optimizer(kind=optimizer, learning_rate=0.01)  # type: ignore[arg-type]
    model = dataclasses.replace(model_of(made), dtype=dtype, embedding_dtype=rows or dtype, optimizer=own)  # type: ignore[arg-type, type-var]
    made = change(made, model=model, cluster=cluster(2, 2, gpu=gpu))
    found = losses(play_ready(made))
    assert found == pytest.approx([0.69] * 3, abs=0.1)


def test_a_rank_larger_than_a_bucket_is_the_scenarios_mistake() -> None:
    compression = Compression(kind="batched_powersgd", start_powerSGD_iter=2, matrix_approximation_rank=50)
    with pytest.raises(ScenarioError) as caught:
        build(training(ALL, compression=compression))
    assert str(caught.value) == (
        "test.toml: compression.matrix_approximation_rank = 50: expected at most 5,"
        " the side of the smallest gradient bucket as a square matrix"
    )

"""Tables with moments: Adam as torch's own, others as a row at a time in plain arithmetic; their costs and bytes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from scenarios.config.scenario import (
    Bag,
    DenseOptimizer,
    Optimizer,
    OptimizerKind,
    Replication,
    Scenario,
    ShardingType,
)
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.sim.test_dlrm_bags import mix
from tests.sim.test_dlrm_host_memory import make_hosted
from tests.sim.test_dlrm_steps import ALL, TOLERANCE, Reference, losses, play_ready, training
from tests.small import change, cluster, model_of

WITH_MOMENTS: tuple[OptimizerKind, ...] = ("adam", "partial_rowwise_adam", "lamb", "partial_rowwise_lamb")
DENSE = DenseOptimizer(kind="Adam", options={"lr": 0.05})


def own(kind: OptimizerKind, **changes: Any) -> Optimizer:
    given = {"learning_rate": 0.05, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, **changes}
    return Optimizer(kind=kind, **given)


def train(made: Scenario, optimizer: Optimizer, dense: DenseOptimizer | None = DENSE) -> Scenario:
    model = dataclasses.replace(model_of(made), optimizer=optimizer, dense_optimizer=dense)
    return change(made, model=model)


class Moving(Reference):
    """A reference whose tables have moments: of each row that a bag names, and of all rows where it is a copy."""

    def __init__(self, training: Scenario) -> None:
        super().__init__(training)
        self.own = self.model.optimizer
        self.dense = torch.optim.Adam(self.module.parameters(), lr=0.05)
        self.means = [torch.zeros_like(weight).tolist() for weight in self.weights]
        self.second = [torch.zeros_like(weight).tolist() for weight in self.weights]
        self.updates = 0
        self.copied = [table.sharding == ("data_parallel",) for table in self.model.tables]

    def step(self, step: int) -> float:
        ranks = range(self.training.cluster.world_size)
        self.named = [
            {int(one) for rank in ranks for ids, _ in self.bags(number, rank, step) for one in ids}
            for number in range(len(self.weights))
        ]
        return super().step(step)

    @torch.no_grad()
    def update_tables(self) -> None:
        self.updates += 1
        for number, weight in enumerate(self.weights):
            if weight.grad is None:
                continue
            rows, gradients = weight.tolist(), weight.grad.tolist()
            for row in range(len(rows)) if self.copied[number] else self.named[number]:
                rows[row] = self.move(number, row, rows[row], gradients[row])
            weight.copy_(torch.tensor(rows))

    def move(self, number: int, row: int, weights: list[float], gradient: list[float]) -> list[float]:
        beta1, beta2, n = self.own.beta1, self.own.beta2, self.updates
        by_row = self.own.kind.startswith("partial")
        mean_square = sum(each * each for each in gradient) / len(gradient)
        way = []
        for j, each in enumerate(gradient):
            mean = beta1 * self.means[number][row][j] + (1 - beta1) * each
            square = beta2 * self.second[number][row][j] + (1 - beta2) * (mean_square if by_row else each * each)
            self.means[number][row][j], self.second[number][row][j] = mean, square
            root = math.sqrt(square / (1 - beta2**n)) + self.own.epsilon
            way.append(mean / (1 - beta1**n) / root + self.own.weight_decay * weights[j])
        ratio = 1.0
        if "lamb" in self.own.kind and any(way):
            ratio = math.hypot(*weights) / math.hypot(*way)
        return [each - self.own.learning_rate * ratio * by for each, by in zip(weights, way, strict=True)]


class OfTorch(Reference):
    """Adam as torch has it: of sparse gradients, and of dense ones where each rank has a copy of the table."""

    def __init__(self, training: Scenario) -> None:
        super().__init__(training)
        own = self.model.optimizer
        given: dict[str, Any] = {"lr": own.learning_rate, "betas": (own.beta1, own.beta2), "eps": own.epsilon}
        self.dense = torch.optim.Adam(self.module.parameters(), **given)
        self.of_tables: list[torch.optim.Optimizer] = [
            (torch.optim.Adam if table.sharding == ("data_parallel",) else torch.optim.SparseAdam)([weight], **given)
            for weight, table in zip(self.weights, self.model.tables, strict=True)
        ]

    def step(self, step: int) -> float:
        ranks = range(self.training.cluster.world_size)
        self.named = [
            torch.cat([ids for rank in ranks for ids, _ in self.bags(number, rank, step)]).unique()
            for number in range(len(self.weights))
        ]
        return super().step(step)

    def update_tables(self) -> None:
        for weight, optimizer, ids in zip(self.weights, self.of_tables, self.named, strict=True):
            gradient: Tensor | None = weight.grad
            assert gradient is not None
            if isinstance(optimizer, torch.optim.SparseAdam):
                weight.grad = torch.sparse_coo_tensor(ids[None], gradient[ids], weight.shape, check_invariants=True)
            optimizer.step()


CUT_BY_ROWS: tuple[ShardingType, ...] = ("row_wise", "table_row_wise", "grid_shard", "column_wise")
# Fewer than ranks; blocks of two, so that the last rank has none; and as many as ranks.
FEW_ROWS = (1, 5, 3, 4)


def with_few_rows(kind: OptimizerKind, types: tuple[ShardingType, ...], bags: tuple[Bag, ...]) -> Scenario:
    """Return a training whose tables leave some of the four ranks without rows."""
    made = mix(bags, types)
    tables = [dataclasses.replace(one, rows=rows) for one, rows in zip(made.workload.tables, FEW_ROWS, strict=True)]
    made = change(made, model=dataclasses.replace(model_of(made), tables=tuple(tables)), steps=2)
    if kind in WITH_MOMENTS:
        return train(made, own(kind))
    return train(made, Optimizer(kind=kind, learning_rate=0.5), dense=None)


@pytest.mark.parametrize(("kind", "decay"), [("adam", 0.0), ("partial_rowwise_adam", 0.1)])
def test_the_dense_part_has_adam_too_unless_it_has_its_own(kind: OptimizerKind, decay: float) -> None:
    made = train(training(ALL), own(kind, weight_decay=decay), dense=None)
    options = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": decay}
    same = train(made, own(kind, weight_decay=decay), DenseOptimizer(kind="AdamW", options=options))
    other = train(made, own(kind, weight_decay=decay))
    found, as_given, of_its_own = (losses(play_ready(one)) for one in (made, same, other))
    assert found == pytest.approx(as_given, rel=TOLERANCE)
    assert found != pytest.approx(of_its_own, rel=TOLERANCE)


@pytest.mark.parametrize("eps", [1e-10, 0.3])
def test_adagrad_uses_the_scenarios_epsilon(eps: float) -> None:
    """As torch's own, of the dense part and of the tables, which here see every row."""
    made = train(
        training(("data_parallel",)),
        Optimizer(kind="adagrad", learning_rate=0.05, state="element", eps=eps),
        dense=None,
    )
    reference = Reference(made)
    reference.dense = torch.optim.Adagrad([*reference.module.parameters(), *reference.weights], lr=0.05, eps=eps)
    reference.update_tables = lambda: None  # type: ignore[method-assign]
    assert losses(play_ready(made)) == pytest.approx(reference.losses(), rel=TOLERANCE)


@pytest.mark.parametrize("kind", get_args(OptimizerKind))
def test_memory_includes_the_optimizers_state_of_rows(kind: OptimizerKind) -> None:
    """By row on the GPU, by element where the table is."""
    made = make_hosted(("fused", "fused_uvm", "fused_uvm_caching"), rows=1000, optimizer=Optimizer(kind=kind))
    made = train(made, Optimizer(kind=kind))
    rows = DlrmProgram(made).memory
    sizes = {part: sum(row.size_bytes for row in rows if row.part == part) for part in {row.part for row in rows}}
    each_row, each_element = {
        "sgd": (0, 0), "adagrad": (4, 0), "adam": (0, 8), "lamb": (0, 8),
    }.get(kind, (4, 4))  # fmt: skip
    here = sum(t.rows * (each_row + each_element * t.dim * (t.kernel == "fused")) for t in made.workload.tables)
    there = sum(t.rows * t.dim * (4 + each_element) * (t.kernel != "fused") for t in made.workload.tables)
    assert sizes["embedding optimizer"] == here
    assert sizes["embedding rows in host memory"] == there


@pytest.mark.parametrize(("kind", "multiple"), [("adam", 2), ("lamb", 1), ("partial_rowwise_adam", 1)])
def test_the_planner_counts_optimizer_state_as_torchrec_does(kind: OptimizerKind, multiple: int) -> None:
    plain = training(("table_wise",), cluster=cluster(1, 1))
    taken = [
        sum(row.storage_bytes for row in DlrmProgram(train(plain, optimizer)).plan)
        for optimizer in (Optimizer(), own(kind))
    ]
    weights = sum(4 * table.rows * table.dim for table in plain.workload.tables)
    assert taken[1] - taken[0] == multiple * weights


@pytest.mark.parametrize("kind", WITH_MOMENTS)
def test_an_update_reads_and_writes_rows_with_their_state(kind: OptimizerKind) -> None:
    """As Adagrad's does with more or less of it: bytes grow with what each of the same rows has."""
    plain = training(("table_wise",), payload="sizes", cluster=cluster(1, 1))
    by_row, by_element, moving = (
        bytes_of_updates(train(plain, optimizer))
        for optimizer in (Optimizer(kind="adagrad"), Optimizer(kind="adagrad", state="element"), own(kind))
    )
    columns = 8
    grown = (own(kind).state_bytes(columns) - 4) / (4 * columns - 4)
    assert moving - by_row == pytest.approx(grown * (by_element - by_row))


def bytes_of_updates(made: Scenario) -> float:
    spans = [one for one in play_ready(made).spans if one.kernel == "embedding_update"]
    assert spans
    return sum(one.bytes_read + one.bytes_written for one in spans)


def test_replicas_average_both_moments() -> None:
    """After the rows: the mean of gradients with an element for each of theirs, that of squares one for each row."""
    plain = training(
        ("data_parallel", "row_wise"),
        payload="sizes",
        replication=Replication(sharding_group_size=2, node_group_size=2),
    )
    made = train(plain, own("partial_rowwise_adam"))
    program = DlrmProgram(made)
    spans = [one for one in simulate(made, program).spans if one.rank == 0 and one.step == 1 and "sync." in one.label]
    rows = sum(row.rows for row in program.plan if row.rank == 0 and row.sharding_type == "row_wise")
    assert [(one.label, one.bytes_in) for one in spans] == [
        ("sync.weights", 4 * 8 * rows),
        ("sync.state", 4 * (8 + 1) * rows),
    ]

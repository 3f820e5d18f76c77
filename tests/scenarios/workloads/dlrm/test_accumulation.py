"""Steps of several micro-batches: as plain torch trains with (loss / n).backward(), and alike in both worlds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from scenarios.config.scenario import Recommender, Scenario, ShardingType
from scenarios.seam.trace import Recording
from scenarios.workloads.dlrm.batches import draw_dense
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.sim.test_dlrm_bags import EVERY, mix
from tests.sim.test_dlrm_features import share
from tests.sim.test_dlrm_steps import ALL, CPU, MORE, TOLERANCE, Reference, losses, training
from tests.small import GPU, change, cluster


class Accumulated(Reference):
    """Micro-batches of the whole world, one after the other: what is sharded is updated at once, the rest after all."""

    def step(self, step: int) -> float:
        count = Recommender.of(self.training.workload).pipeline.accumulation
        found = [self.micro_batch(step * count + number, 1 / count) for number in range(count)]
        self.dense.step()
        self.dense.zero_grad()
        self.update(self.copies)
        return sum(found) / count

    @property
    def copies(self) -> list[int]:
        return [at for at, table in enumerate(self.model.tables) if table.sharding == ("data_parallel",)]

    def micro_batch(self, number: int, share: float) -> float:
        ranks = range(self.training.cluster.world_size)
        batches = [draw_dense(self.training, self.model, rank, number, device=CPU) for rank in ranks]
        tables = self.look_up_all(ranks, number)
        dense, labels = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("features", "labels"))
        loss = self.module(dense, tables, labels)
        (loss * share).backward()
        self.update([at for at in range(len(self.weights)) if at not in self.copies])
        return loss.item()

    def update(self, chosen: list[int]) -> None:
        every, squares = self.weights, self.squares
        self.weights, self.squares = [every[at] for at in chosen], [squares[at] for at in chosen]
        self.update_tables()
        for weight in self.weights:
            weight.grad = None
        self.weights, self.squares = every, squares


def accumulating(made: Scenario, count: int = 3, **changes: Any) -> Scenario:
    return change(
        made, pipeline=dataclasses.replace(Recommender.of(made.workload).pipeline, accumulation=count, **changes)
    )


def step_ns(recording: Recording) -> float:
    return min(one.end_ns - one.start_ns for one in recording.spans if one.kind == "step")


@pytest.mark.parametrize("order", ["eager", pytest.param("overlapped", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("types", "optimizer"),
    [
        (("data_parallel",), "adagrad"),
        (ALL, "sgd"),
        (MORE, "adagrad"),
        *(
            pytest.param(types, optimizer, marks=pytest.mark.slow)
            for types, optimizer in ((("data_parallel",), "sgd"), (ALL, "adagrad"), (MORE, "sgd"))
        ),
    ],
    ids=str,
)
def test_micro_batches_train_as_in_plain_torch(types: tuple[ShardingType, ...], optimizer: str, order: str) -> None:
    made = accumulating(training(types, optimizer=optimizer), order=order)
    assert losses(simulate(made, DlrmProgram(made))) == pytest.approx(Accumulated(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize(("kind", "shares"), [("none", False), ("sparse_dist", False), ("none", True)])
def test_every_bag_trains_in_micro_batches(kind: str, shares: bool) -> None:
    made = accumulating(share(mix(EVERY, ALL, "adagrad")) if shares else mix(EVERY, ALL), kind=kind)
    assert losses(simulate(made, DlrmProgram(made))) == pytest.approx(Accumulated(made).losses(), rel=TOLERANCE)


def test_replicated_gradients_are_reduced_once_a_step_and_shards_updated_every_time() -> None:
    count = 4
    made = training(ALL).with_run(payload="sizes")
    labels = {}
    for one in (made, accumulating(made, count)):
        spans = simulate(one, DlrmProgram(one)).spans
        of_step = [each.label for each in spans if each.rank == 0 and each.step == 1]
        labels[Recommender.of(one.workload).pipeline.accumulation] = {label: of_step.count(label) for label in of_step}
    once, several = labels[1], labels[count]
    for label in ("data_parallel.all_reduce", "data_parallel.update", "dense.gradients.mean", "dense.update"):
        assert several[label] == once[label]
    for label in ("row_wise.update", "table_wise.lookup", "table_row_wise.output_dist.all_to_all"):
        assert several[label] == count * once[label]
    assert several["data_parallel.accumulate"] == count - 1


def test_expected_micro_batches_take_as_long_as_drawn_ones() -> None:
    big = dataclasses.replace(GPU, memory_bytes=1 << 40)
    made = mix(EVERY, ALL, batch_size=512, payload="sizes", fidelity="flows", library="nccl")
    made = accumulating(dataclasses.replace(made, cluster=cluster(4, 2, gpu=big)))
    alike = made.with_run(fidelity="links", ranks="alike")
    every, folded = (simulate(one, DlrmProgram(one)) for one in (made, alike))
    assert step_ns(folded) == pytest.approx(step_ns(every), rel=0.05)


def test_gradients_that_add_up_stay_in_memory() -> None:
    sizes = {}
    for count in (1, 2, 8):
        made = accumulating(training(ALL), count)
        rows = DlrmProgram(made).memory
        sizes[count] = sum(
            row.size_bytes for row in rows if row.rank == 0 and row.part == "gradients" and "forward" in row.phases
        )
    parameters = Reference(training(ALL)).module.parameters()
    assert sizes[1] == 0
    assert sizes[2] == sizes[8] == sum(each.numel() * 4 for each in parameters)

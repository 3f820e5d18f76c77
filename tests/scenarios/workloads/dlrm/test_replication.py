"""2D parallelism: replicas of tables train on their own group's samples, and are averaged, as in plain torch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scenarios.config.scenario import Pipeline, Replication, Scenario, ShardingType
from scenarios.seam.trace import Recording
from scenarios.workloads.dlrm.batches import draw_dense
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.sim.test_dlrm_bags import EVERY, calls, mix
from tests.sim.test_dlrm_steps import ALL, CPU, MORE, TOLERANCE, Reference, losses, training
from tests.small import change, cluster, model_of, with_model

STRIDED = Replication(sharding_group_size=2, node_group_size=2)


class Replicated(Reference):
    """A reference for each sharding group, whose dense parts and data_parallel tables are kept equal."""

    def __init__(self, training: Scenario) -> None:
        super().__init__(training)
        self.replication = training.workload.replicas
        assert self.replication is not None
        self.groups = self.replication.sharding_groups(training.cluster.world_size)
        copies = [[weight.detach().clone().requires_grad_() for weight in self.weights] for _ in self.groups]
        self.replicas = [(weights, [torch.zeros_like(each) for each in self.squares]) for weights in copies]
        self.copied = [table.sharding == ("data_parallel",) for table in self.model.tables]

    def step(self, step: int) -> float:
        found = [self.loss(group, step) for group in range(len(self.groups))]
        self.dense.zero_grad()
        sum(found[1:], found[0]).backward()
        for parameter in self.module.parameters():
            parameter.grad /= len(self.groups)
        self.dense.step()
        for at in (at for at, is_copy in enumerate(self.copied) if is_copy):
            mean = torch.stack([weights[at].grad for weights, _ in self.replicas]).mean(0)
            for weights, _ in self.replicas:
                weights[at].grad = mean.clone()
        for replica in self.replicas:
            self.weights, self.squares = replica
            self.update_tables()
            for weight in self.weights:
                weight.grad = None
        assert self.replication is not None
        if (step + 1) % self.replication.sync_every == 0:
            self.average()
        return sum(each.item() for each in found) / len(found)

    @torch.no_grad()
    def average(self) -> None:
        for at in range(len(self.copied)):
            for which in (0, 1):
                tensors = [replica[which][at] for replica in self.replicas]
                mean = torch.stack(tensors).mean(0)
                for tensor in tensors:
                    tensor.copy_(mean)

    def loss(self, group: int, step: int) -> Tensor:
        self.weights, self.squares = self.replicas[group]
        ranks = self.groups[group]
        batches = [draw_dense(self.training, self.model, rank, step, device=CPU) for rank in ranks]
        tables = self.look_up_all(ranks, step)
        dense, labels = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("features", "labels"))
        loss: Tensor = self.module(dense, tables, labels)
        return loss


def replicate(made: Scenario, replication: Replication = STRIDED, **changes: Any) -> Scenario:
    return change(made, replication=replication, **changes)


def found_losses(made: Scenario) -> list[float]:
    return losses(simulate(made, DlrmProgram(made)))


@pytest.mark.parametrize("inter_host", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("types", [("data_parallel",), ALL, MORE], ids="+".join)
def test_replicas_train_as_in_plain_torch(types: tuple[ShardingType, ...], inter_host: bool) -> None:
    made = replicate(
        training(types, optimizer="adagrad", steps=5),
        dataclasses.replace(STRIDED, sync_every=2, inter_host_allreduce=inter_host),
    )
    calm = dataclasses.replace(model_of(made).optimizer, learning_rate=0.05)  # a loss that grows makes rounding grow
    made = with_model(made, optimizer=calm)
    assert found_losses(made) == pytest.approx(Replicated(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize("kind", ["none", "sparse_dist"])
@pytest.mark.parametrize("order", ["eager", pytest.param("overlapped", marks=pytest.mark.slow)])
def test_every_bag_and_pipeline(kind: str, order: str) -> None:
    pipeline = Pipeline(kind=kind, order=order)  # type: ignore[arg-type]
    made = replicate(mix(EVERY, ALL, "adagrad", pipeline=pipeline))
    assert found_losses(made) == pytest.approx(Replicated(made).losses(), rel=TOLERANCE)


@settings(deadline=None, max_examples=4)
@given(st.data())
def test_any_groups_of_any_world_train_as_in_plain_torch(data: st.DataObject) -> None:
    hosts, gpus = data.draw(st.sampled_from([(1, 4), (2, 2), (3, 2), (2, 4)]), label="hosts, gpus")
    world = hosts * gpus
    size = data.draw(st.sampled_from([each for each in range(1, world + 1) if world % each == 0]), label="size")
    node = data.draw(st.sampled_from([each for each in range(1, size + 1) if size % each == 0]), label="node")
    replication = Replication(
        sharding_group_size=size,
        node_group_size=node,
        sync_every=data.draw(st.integers(1, 4)),
        inter_host_allreduce=data.draw(st.booleans()),
    )
    types = data.draw(st.sampled_from([ALL, MORE]))
    made = replicate(training(types, optimizer="adagrad"), replication, cluster=cluster(hosts, gpus), batch_size=3)
    assert found_losses(made) == pytest.approx(Replicated(made).losses(), rel=TOLERANCE)


def test_sgd_that_is_averaged_after_each_step_is_one_large_batch() -> None:
    """The mean of what each group's mean gradient does to its rows is what the mean over all of them does."""
    made = training(ALL, steps=4)
    assert found_losses(replicate(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)
    seldom = replicate(made, dataclasses.replace(STRIDED, sync_every=3))
    assert found_losses(seldom) != pytest.approx(Reference(made).losses(), rel=TOLERANCE)


def test_a_group_of_all_ranks_is_no_replication() -> None:
    made = training(ALL, payload="sizes")
    whole = replicate(made, Replication(sharding_group_size=4, node_group_size=2, sync_every=100))
    plain, grouped = (simulate(one, DlrmProgram(one)) for one in (made, whole))
    assert calls(plain) == calls(grouped)
    assert [(one.start_ns, one.end_ns) for one in plain.spans] == [(one.start_ns, one.end_ns) for one in grouped.spans]


def find_syncs(recording: Recording) -> list[tuple[int, str, str, int]]:
    return [
        (one.step, one.label, one.group, one.bytes_in)
        for one in recording.spans
        if one.rank == 0 and one.label.startswith("sync.")
    ]


def test_weights_and_state_of_shards_are_averaged_every_second_step() -> None:
    """Rows and then state of all that is sharded: not of copies, and only after each second step."""
    made = replicate(
        training(("data_parallel", "row_wise", "table_wise"), optimizer="adagrad", payload="sizes", steps=4),
        dataclasses.replace(STRIDED, sync_every=2),
    )
    program = DlrmProgram(made)
    found = find_syncs(simulate(made, program))
    rows = sum(row.rows for row in program.plan if row.rank == 0 and row.sharding_type != "data_parallel")
    sizes = {"weights": 4 * 8 * rows, "state": 4 * rows}
    assert [(step, label, size) for step, label, _, size in found] == [
        (step, f"sync.{what}", size) for step in (1, 3) for what, size in sizes.items()
    ]


@pytest.mark.parametrize("inter_host", [False, True])
def test_ids_and_rows_stay_in_the_sharding_group(inter_host: bool) -> None:
    """Two hosts of two: groups that follow each other stay in their host, the others never use its links."""
    made = replicate(
        training(("row_wise", "table_wise"), payload="sizes", batch_size=64),
        dataclasses.replace(STRIDED, sync_every=100, inter_host_allreduce=inter_host),
    )
    recording = simulate(made, DlrmProgram(made))
    inside = sum(one.bytes_in for one in recording.spans if "output_dist" in one.label)
    carried = {one.link_class: 0.0 for one in recording.links}
    for one in recording.links:
        carried[one.link_class] += one.bytes_carried
    assert inside > 0
    assert (carried["nic"] < carried["nvlink"]) is inter_host


def test_the_plan_and_the_memory_are_those_of_every_rank() -> None:
    made = replicate(training(ALL))
    program = DlrmProgram(made)
    places: dict[int, list[tuple[str, int, int, int]]] = {rank: [] for rank in range(4)}
    for row in program.plan:
        places[row.rank].append((row.table, row.row_offset, row.rows, row.columns))
    assert (places[0], places[2]) == (places[1], places[3])
    assert places[0] != places[2]
    of_rank = [[(row.part, row.size_bytes) for row in program.memory if row.rank == rank] for rank in range(4)]
    assert (of_rank[0], of_rank[2]) == (of_rank[1], of_rank[3])
    weights = [dict(parts)["embedding weights"] for parts in of_rank]
    assert weights == [sum(rows * columns * 4 for _, _, rows, columns in places[rank]) for rank in range(4)]

"""A DLRM whose dense part is sharded trains as one with copies, and does the same in both worlds."""

from __future__ import annotations

import dataclasses

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import DenseOptimizer, DenseParallel, Scenario
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.mistakes import mistakes_of
from tests.scenarios.workloads.dlrm.test_accumulation import Accumulated, accumulating
from tests.sim.test_dlrm_steps import ALL, TOLERANCE, Reference, losses, training
from tests.small import change, cluster, model_of

FSDP, HSDP = DenseParallel(kind="fsdp"), DenseParallel(kind="hsdp")


def shard(made: Scenario, parallel: DenseParallel = FSDP) -> Scenario:
    return change(made, dense_parallel=parallel)


@pytest.mark.parametrize(
    "units",
    [None, pytest.param(("top", "top.2", "cross.1"), marks=pytest.mark.slow), pytest.param((), marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("parallel", [FSDP, HSDP], ids=lambda each: each.kind)
def test_shards_train_as_in_plain_torch(parallel: DenseParallel, units: tuple[str, ...] | None) -> None:
    made = shard(training(ALL, optimizer="adagrad"), dataclasses.replace(parallel, units=units))
    assert losses(simulate(made, DlrmProgram(made))) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize("reduces", [True, False])
def test_micro_batches_train_as_in_plain_torch(reduces: bool) -> None:
    parallel = DenseParallel(kind="hsdp", shard_group_size=2, reduce_every_micro_batch=reduces)
    made = accumulating(shard(training(ALL, optimizer="adagrad"), parallel))
    recording = simulate(made, DlrmProgram(made))
    assert losses(recording) == pytest.approx(Accumulated(made).losses(), rel=TOLERANCE)
    spans = [one for one in recording.spans if (one.rank, one.step, one.kind) == (0, 1, "reduce_scatter_tensor")]
    assert len([one for one in spans if one.stream == "dense.shards"]) == 4 * (3 if reduces else 1)


@pytest.mark.parametrize("parallel", [FSDP, HSDP], ids=lambda each: each.kind)
def test_representatives_take_the_time_of_all_hosts(parallel: DenseParallel) -> None:
    made = shard(training(("row_wise",)), parallel)
    table = dataclasses.replace(made.workload.tables[0], rows=4096)
    model = dataclasses.replace(model_of(made), tables=(table,))
    each = change(made, cluster=cluster(4, 2), model=model, library="nccl", payload="sizes")
    took = [
        max(span.end_ns - span.start_ns for span in simulate(one, DlrmProgram(one)).spans if span.kind == "step")
        for one in (each, each.with_run(ranks="alike"))
    ]
    assert took[1] == pytest.approx(took[0], rel=0.02)


def test_units_that_are_not_there_are_a_sentence() -> None:
    changes = {"compression.kind": "none", "dense_parallel.kind": "fsdp", "dense_parallel.units": ["top", "head"]}
    made = load("criteo_small_2x2", changes)
    expected = "expected submodules that are called, but 'head' is none"
    assert mistakes_of(build, made) == [f"{made.path}: dense_parallel.units = ['top', 'head']: {expected}"]


def test_an_optimizer_over_whole_parameters_is_a_sentence() -> None:
    made = shard(training(ALL))
    model = dataclasses.replace(model_of(made), dense_optimizer=DenseOptimizer(kind="Adafactor", options={}))
    with pytest.raises(
        ScenarioError, match=r"dense_parallel.kind = 'fsdp': expected one that works element by element"
    ):
        DlrmProgram(change(made, model=model))

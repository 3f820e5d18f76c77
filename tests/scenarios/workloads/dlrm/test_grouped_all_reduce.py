"""Gradients of the dense part and of copied tables as one all-reduce: what is sent; it trains the same model."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.config.scenario import Buckets, Launching, Pipeline, Scenario, ShardingType
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.contract.worlds import WORLDS
from tests.sim.test_dlrm_bags import EVERY, mix
from tests.sim.test_dlrm_steps import ALL, TOLERANCE, Reference, losses, training
from tests.small import GPU, change, cluster, model_of

GROUPED = Launching(grouped_all_reduce=True)
COPIES: tuple[ShardingType, ...] = ("data_parallel", "row_wise", "table_wise")
SMALL = Buckets(first_bytes=100, cap_bytes=100)


def group(made: Scenario, **changes: Any) -> Scenario:
    return change(made, launching=GROUPED, **changes)


def run(made: Scenario) -> Recording:
    return simulate(made, DlrmProgram(made))


def reductions(recording: Recording, step: int = 1) -> list[Span]:
    found = [one for one in recording.spans if (one.rank, one.step) == (0, step) and "all_reduce" in one.kind]
    return sorted(found, key=lambda one: one.issued_ns)


@pytest.mark.parametrize("order", ["eager", "overlapped"])
@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "adagrad"])
def test_grouped_reduction_trains_the_same_model(order: Any, optimizer: str) -> None:
    made = group(mix(EVERY, COPIES, optimizer, pipeline=Pipeline(order=order)), buckets=SMALL)
    assert losses(run(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


@settings(deadline=None, max_examples=5)
@given(st.data())
def test_grouped_and_single_reductions_train_alike(data: st.DataObject) -> None:
    pipeline = Pipeline(
        kind=data.draw(st.sampled_from(["none", "sparse_dist", "semi_sync"])),
        order=data.draw(st.sampled_from(["eager", "overlapped"])),
        accumulation=data.draw(st.integers(1, 2)),
    )
    types = data.draw(st.sampled_from([("data_parallel",), COPIES, ("row_wise",)]))
    cap_bytes = data.draw(st.integers(1, 4000))
    buckets = Buckets(first_bytes=cap_bytes, cap_bytes=cap_bytes)
    made = training(types, pipeline=pipeline, buckets=buckets, steps=2, batch_size=3)
    assert losses(run(group(made))) == pytest.approx(losses(run(made)), rel=TOLERANCE)


@pytest.mark.parametrize("order", ["eager", "overlapped"])
@pytest.mark.parametrize("types", [("data_parallel",), COPIES], ids="+".join)
def test_there_is_one_call_with_the_bytes_of_all(types: tuple[ShardingType, ...], order: Any) -> None:
    made = training(types, payload="sizes", pipeline=Pipeline(order=order), buckets=SMALL)
    single, (together,) = reductions(run(made)), reductions(run(group(made)))
    assert len(single) > 2
    assert together.label == "dense.gradients.grouped"
    assert together.kind == "all_reduce_coalesced"
    assert together.bytes_in == sum(one.bytes_in for one in single)


def test_grouped_reduction_begins_after_the_backward_pass_and_before_copied_tables_update() -> None:
    recording = run(group(training(COPIES, payload="sizes", pipeline=Pipeline(order="overlapped"), library="nccl")))
    (together,) = reductions(recording)
    of_step = [one for one in recording.spans if (one.rank, one.step) == (0, 1)]
    last = max(one.end_ns for one in of_step if one.label.startswith("dense.backward"))
    copies = [one for one in of_step if one.label == "data_parallel.update"]
    assert last <= together.start_ns
    assert together.end_ns <= min(one.start_ns for one in copies)


def test_semi_sync_groups_gradients_before_those_of_sharded_tables_travel() -> None:
    pipeline = Pipeline(kind="semi_sync", order="eager")
    recording = run(group(training(COPIES, payload="sizes", pipeline=pipeline, library="nccl")))
    (together,) = reductions(recording)
    of_step = [one for one in recording.spans if (one.rank, one.step) == (0, 1)]
    backs = [one for one in of_step if one.label in ("row_wise.gradients", "table_wise.gradients")]
    updates = [one for one in of_step if one.label in ("row_wise.update", "table_wise.update")]
    assert len(backs) == len(updates) == 2
    assert all(together.issued_ns <= one.start_ns for one in backs + updates)


def halves(types: tuple[ShardingType, ...], **changes: Any) -> Scenario:
    """A dense part of bfloat16 over tables of float32."""
    made = training(types, **changes)
    model = dataclasses.replace(model_of(made), dtype="bfloat16", embedding_dtype="float32")
    gpu = dataclasses.replace(GPU, flops_per_s={"float32": 1e13, "bfloat16": 1e14})
    return change(made, model=model, cluster=cluster(2, 2, gpu=gpu))


def test_gradients_of_copies_travel_in_the_dense_parts_precision() -> None:
    made = halves(("data_parallel",), payload="sizes")
    single, (together,) = reductions(run(made)), reductions(run(group(made)))
    sent = {dtype: sum(one.bytes_in for one in single if one.dtype == dtype) for dtype in ("bfloat16", "float32")}
    assert together.dtype == "bfloat16"
    assert together.bytes_in == sent["bfloat16"] + sent["float32"] // 2


@pytest.mark.slow
@pytest.mark.real
def test_half_precision_is_alike_in_both_worlds() -> None:
    made = group(halves(("data_parallel", "row_wise"), steps=2))
    found = [losses(play(DlrmProgram(made), made)) for play in WORLDS.values()]
    assert found[0] == pytest.approx(found[1], rel=1e-2)
    plain = change(made, launching=Launching())
    assert found[0] == pytest.approx(losses(run(plain)), rel=1e-2)


@pytest.mark.parametrize("order", ["eager", "overlapped"])
def test_tables_that_nobody_uses_are_left_out(order: Any) -> None:
    made = group(training(COPIES, pipeline=Pipeline(order=order)))
    model = dataclasses.replace(model_of(made), dense="tests.sim.test_step_order:Reader", bottom=(), top=())
    made = change(made, model=model)
    assert losses(run(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


def test_grouped_reduction_is_faster_than_many_small_calls() -> None:
    made = training(ALL, payload="sizes", library="nccl", buckets=SMALL)
    steps = [
        max(one.end_ns - one.start_ns for one in run(each).spans if one.kind == "step") for each in (group(made), made)
    ]
    assert steps[0] < steps[1]

"""The order of a step's parts: as eager autograd runs TorchRec's modules, or overlapped; both train the same model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.load import load
from scenarios.config.scenario import Buckets, Pipeline, Scenario
from scenarios.seam.trace import Recording, Span
from scenarios.sharding_kind import ShardingType
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.dense import Embeddings
from sim.run import simulate
from tests.sim.test_dlrm_bags import mix
from tests.sim.test_dlrm_steps import ALL, TOLERANCE, Reference, losses, play_ready, training
from tests.small import change, model_of

EAGER, OVERLAPPED = Pipeline(order="eager"), Pipeline(order="overlapped")
TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise")


class Reader(nn.Module):
    """Uses one table only."""

    def __init__(self, dense_features: int, dims: dict[str, int]) -> None:
        super().__init__()
        self.score = nn.Linear(next(iter(dims.values())), 1)

    def forward(self, dense: Tensor, embeddings: Embeddings, labels: Tensor) -> Tensor:
        rows = next(iter(embeddings.values()))
        return functional.binary_cross_entropy_with_logits(self.score(rows).squeeze(1), labels)


def first_step(recording: Recording, rank: int = 0) -> list[Span]:
    """Its collectives and computations, as they begin."""
    found = [one for one in recording.spans if (one.rank, one.step) == (rank, 1) and one.kind != "step"]
    return sorted(found, key=lambda one: one.start_ns)


def with_label(spans: list[Span], part: str) -> list[Span]:
    return [one for one in spans if part in one.label]


def test_an_eager_step_looks_up_where_the_dense_part_first_uses_it() -> None:
    spans = first_step(play_ready(training(TYPES, pipeline=EAGER, library="nccl")))
    (bottom,) = with_label(spans, "dense.forward.0")
    splits, values = with_label(spans, ".splits"), with_label(spans, "input_dist.values")
    assert len(splits) == len(values) == len(TYPES)
    assert bottom.end_ns <= splits[0].start_ns
    assert max(one.start_ns for one in splits) <= min(one.start_ns for one in values)
    (top,) = with_label(spans, "dense.forward.1")
    assert max(one.end_ns for one in with_label(spans, "output_dist.")) <= top.start_ns


def test_backward_waits_for_the_gradient_exchange_which_starts_with_the_last_group() -> None:
    one = Buckets(first_bytes=1 << 20, cap_bytes=1 << 20)
    spans = first_step(play_ready(training(TYPES, pipeline=EAGER, library="nccl", buckets=one)))
    back = [one for one in with_label(spans, "output_dist_backward") if one.kind != "compute"]
    updates = [one for one in spans if one.label.endswith("_wise.update")]
    assert [one.label.split(".")[0] for one in back] == ["row_wise", "table_wise"]
    assert [one.label for one in updates] == ["row_wise.update", "table_wise.update"]
    last = with_label(spans, "dense.backward")[-1]
    assert max(one.end_ns for one in updates) <= last.start_ns
    (reduced,) = [one for one in with_label(spans, "dense.gradients") if one.kind == "all_reduce"]
    assert last.end_ns <= reduced.start_ns


def test_the_modules_of_pooled_and_weighted_tables_are_called_one_after_the_other() -> None:
    made = mix(("pooled", "weighted"), TYPES, pipeline=EAGER, library="nccl")
    spans = first_step(play_ready(made))
    pooled = [one for one in with_label(spans, ".lookup") if not one.label.startswith("weighted")]
    weighted = [one for one in with_label(spans, ".splits") if one.label.startswith("weighted")]
    assert max(one.end_ns for one in pooled) <= min(one.start_ns for one in weighted)


def test_an_overlapped_step_hides_what_an_eager_one_waits_for() -> None:
    steps = {}
    for pipeline in (EAGER, OVERLAPPED):
        recording = play_ready(training(ALL, batch_size=256, payload="sizes", library="nccl", pipeline=pipeline))
        steps[pipeline.order] = max(one.end_ns - one.start_ns for one in recording.spans if one.kind == "step")
    assert steps["overlapped"] < steps["eager"]


@pytest.mark.parametrize("pipeline", [EAGER, OVERLAPPED], ids=["eager", "overlapped"])
def test_tables_that_nobody_uses_hold_nothing_up(pipeline: Pipeline) -> None:
    made = training(TYPES, pipeline=pipeline)
    model = dataclasses.replace(model_of(made), dense=f"{__name__}:Reader", bottom=(), top=())
    made = change(made, model=model)
    assert losses(play_ready(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


SAME = """
program = "dlrm"
[run]
batch_size = {batch}
steps = 2
[cluster]
profile = "dgx_h100"
hosts = 1
gpus_per_host = 2
[model]
dense_features = 4
bottom = [8, {dim}]
top = [8, 1]
interaction = {{kind = "dot"}}
embedding_dim = {dim}
tables = [
    {{name = "t0", rows = {rows}, ids_per_sample = 1, ranks = [0], sharding = ["table_wise"]}},
    {{name = "t1", rows = {rows}, ids_per_sample = 1, sharding = ["row_wise"]}},
    {{name = "t2", rows = {rows}, ids_per_sample = 1, sharding = ["data_parallel"]}},
    {{name = "t3", rows = {rows}, ids_per_sample = 1, ranks = [1], sharding = ["table_wise"]}},
]
"""
MARKS = {
    "dense.forward.0": "dense_arch forward",
    "dense.forward.1": "over_arch forward",
    "dense.backward.0": "over_arch backward",
    "dense.update": "",
}


def test_the_eager_step_equals_torchrecs(tmp_path: Path) -> None:
    """What benchmarks/torchrec_step.py wrote down of a real one. There gradients of copies are summed once those of
    other tables travel; here what is computed before either goes on side by side, and may end in another order.
    """
    real = json.loads((Path(__file__).parent.parent / "data/torchrec_step.json").read_text())
    (tmp_path / "same.toml").write_text(SAME.format(**{key: real[key] for key in ("batch", "dim", "rows")}))
    step = second_step(load(tmp_path / "same.toml"))
    assert list_issued(step) == without_reductions(real["calls"])
    bottom = [one for one in step if one.label.startswith("dense.backward")][-1]
    copies, dense = sorted((one for one in step if one.kind == "all_reduce"), key=lambda one: one.issued_ns)
    sizes = [one["elements"] * one["element_bytes"] for one in real["calls"] if one["op"] == "all_reduce"]
    assert [copies.bytes_in, dense.bytes_in] == sizes
    assert copies.issued_ns < bottom.start_ns < bottom.end_ns <= dense.issued_ns
    assert [one["op"] for one in real["calls"][-3:]] == ["all_reduce", "dense_arch backward", "all_reduce"]


def second_step(scenario: Scenario) -> list[Span]:
    """What rank 0 does in its second step."""
    spans = simulate(scenario, build(scenario)).spans
    return [one for one in spans if (one.rank, one.step) == (0, 1) and one.kind != "step"]


def without_reductions(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in calls if one["op"] != "all_reduce"]


def list_issued(step: list[Span]) -> list[dict[str, Any]]:
    """What a rank issues in a step but all-reduces, as benchmarks/torchrec_step.py writes it down."""
    own = [one for one in step if one.kind != "all_reduce"]
    found = []
    for one in sorted(own, key=lambda one: one.issued_ns):
        if one.kind != "compute":
            size = getattr(torch, one.dtype).itemsize
            found.append({"op": one.kind, "element_bytes": size, "elements": one.bytes_in // size})
        elif MARKS.get(one.label):
            found.append({"op": MARKS[one.label]})
    bottom = [one for one in own if one.label.startswith("dense.backward")][-1]
    back = [one for one in own if "output_dist_backward" in one.label and one.kind != "compute"]
    assert max(one.end_ns for one in back) < bottom.start_ns
    return [*found, {"op": "dense_arch backward"}]

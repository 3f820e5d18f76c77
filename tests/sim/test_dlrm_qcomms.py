"""Steps with quantized exchanges: alike in both worlds, fewer bytes, and as near the plain ones as their bits allow."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scenarios.config.hardware import Cluster
from scenarios.config.scenario import CommPrecision, QComms, Recommender, Scenario, ShardingType
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import Recording
from scenarios.workloads.dlrm.batches import draw_bags, initial_rows
from scenarios.workloads.dlrm.dense import Embeddings
from scenarios.workloads.dlrm.program import DlrmProgram
from tests.sim.test_dlrm_bags import EVERY, PIPELINE, mix
from tests.sim.test_dlrm_steps import ALL, losses, play_ready, training
from tests.small import change, cluster, model_of

# What neither adds sums nor cuts rows into parts: int8 will do for it.
WHOLE: tuple[ShardingType, ...] = ("table_wise", "column_wise", "data_parallel")
HALVES = QComms(forward_precision="fp16", backward_precision="bf16", backward_loss_scale=8.0)
FP8 = QComms(forward_precision="fp8", backward_precision="fp8", fp8_quantize_dim=8, fp8_quantize_dim_bwd=4)
INT8 = QComms(forward_precision="int8", backward_precision="int8")
CASES: list[tuple[QComms, tuple[ShardingType, ...], dict[str, Any]]] = [
    (HALVES, ALL, {}),
    (FP8, ALL, {"pipeline": PIPELINE}),
    (INT8, WHOLE, {"dim": 32}),
]


def quantize(given: QComms, types: tuple[ShardingType, ...], **changes: Any) -> Scenario:
    return change(mix(EVERY, types, **changes), qcomms=given)


def count_sent(recording: Recording) -> dict[str, int]:
    """Bytes that ranks give to each collective of pooled rows, by label."""
    found: dict[str, int] = {}
    for span in recording.spans:
        if "output_dist" in span.label and span.kind not in ("compute", "step"):
            found[span.label] = found.get(span.label, 0) + span.bytes_in
    return found


@pytest.mark.parametrize(
    ("given", "types", "there", "back"),
    [
        (QComms(forward_precision="fp16"), ALL, {}, {"all_to_all": 1.0, "all_gather": 1.0}),
        (QComms(backward_precision="bf16"), ALL, {"all_to_all": 1.0, "reduce_scatter": 1.0}, {}),
        (FP8, ALL, {"all_to_all": 16 / 32}, {"all_to_all": 12 / 16}),
        (QComms(forward_precision="fp8", fp8_quantize_dim=32), WHOLE, {"all_to_all": 40 / 128}, {"all_to_all": 1.0}),
        (INT8, WHOLE, {"all_to_all": 40 / 128}, {"all_to_all": 40 / 128}),
    ],
    ids=["fp16", "bf16 back", "fp8", "fp8 of 32", "int8"],
)
def test_calls_carry_the_encoded_bytes(
    given: QComms, types: tuple[ShardingType, ...], there: dict[str, float], back: dict[str, float]
) -> None:
    """Halves are half of float32, and a row of n bytes carries 8 more; those of the kinds that are not named: half."""
    plain, coded = (
        count_sent(play_ready(made))
        for made in (quantize(one, types, dim=32, payload="sizes", batch_size=8) for one in (QComms(), given))
    )
    assert plain.keys() == coded.keys()
    assert len(plain) > 2  # there and back, of several groups
    for label, size in plain.items():
        shares = back if "backward" in label else there
        assert coded[label] == size * shares.get(label.rsplit(".", 1)[1], 0.5), label


class Linear(nn.Module):
    """A loss that is linear in the embeddings, by constants: so is what quantizing them does to it."""

    WEIGHT = 0.75

    def __init__(self, dense_features: int, dims: dict[str, int]) -> None:
        super().__init__()
        self.unused = nn.Linear(dense_features, 1)

    def forward(self, dense: Tensor, embeddings: Embeddings, labels: Tensor) -> Tensor:
        whole = torch.cat([rows for _, rows in embeddings.items()], 1).sum(1) * self.WEIGHT
        return (whole + 0.0 * self.unused(dense).squeeze(1)).mean()


# How far what is decoded is from what was encoded, forward and backward, as a part of the largest magnitude beside it:
# half a unit in the last place of 11, 8, 4 and 3 bits; half a step of 255 over twice the magnitude.
LOST: dict[CommPrecision, tuple[float, float]] = {
    "fp16": (2**-11, 2**-11),
    "bf16": (2**-8, 2**-8),
    "fp8": (2**-4, 2**-3),
    "int8": (1 / 255, 1 / 255),
}


def lose(precision: CommPrecision, kind: ShardingType, on: Cluster) -> tuple[float, float]:
    """How far pooled rows and gradients are off when they have come home, as parts of magnitudes.

    An all-to-all rounds once. A reduce-scatter of r ranks rounds each part, and up to r sums of parts, whose magnitudes
    add up to no more than the sum's bound; its way back rounds once. fp8 goes there as fp16, and back as bf16.
    """
    sums: CommPrecision = "fp16" if precision == "fp8" else precision
    sums_back: CommPrecision = "bf16" if precision == "fp8" else precision
    adding = {"row_wise": on.world_size, "table_row_wise": on.host.gpus}.get(kind, 0)
    there = (1 + LOST[sums][0]) ** (adding + 1) if adding else 1.0
    back = 1 + LOST[sums_back][1] if adding else 1.0
    if kind != "row_wise":
        there, back = there * (1 + LOST[precision][0]), back * (1 + LOST[precision][1])
    return there - 1, back - 1


def allow(made: Scenario) -> list[float]:
    """The most that quantizing can change each step's loss by: derived for `Linear` and plain SGD.

    Each of the N ids of a row in the batches before has moved all its elements by rate * WEIGHT / samples, up to what
    gradients lost; so the row is off by up to that lost part of N times as much. A sample's pooled row is off by the
    sum of its rows' and, home, by the lost part of the largest that a pooled row can be. The loss is WEIGHT times the
    mean of the samples' sums. Float32's own roundings, 1e-5 of all, are far below.
    """
    ranks, on = range(made.cluster.world_size), made.cluster
    move = model_of(made).optimizer.learning_rate * Linear.WEIGHT / (made.run.batch_size * on.world_size)
    bounds = [0.0] * made.run.steps
    for number, table in enumerate(made.workload.tables):
        there, back = lose(Recommender.of(made.workload).qcomms.forward_precision, table.sharding[0], on)
        rows = initial_rows(number, made.run.seed, range(table.rows), range(table.dim), device=torch.device("cpu"))
        before = np.zeros(table.rows)
        for step in range(made.run.steps):
            ids = np.concatenate([draw_bags(made, number, rank, step).ids for rank in ranks])
            largest = table.ids_per_sample * (float(rows.abs().max()) + move * before.max() * (1 + back))
            drift = table.ids_per_sample * move * back * before[ids].mean()
            bounds[step] += Linear.WEIGHT * table.dim * (drift + there * largest)
            before += np.bincount(ids, minlength=table.rows)
    return bounds


@pytest.mark.parametrize(
    ("precision", "types", "dim"),
    [
        *((kind, ("table_wise", "row_wise", "table_row_wise"), 8) for kind in ("fp16", "bf16", "fp8")),
        ("int8", ("table_wise",), 32),
    ],
)
def test_losses_differ_by_no_more_than_quantizing_allows(
    precision: CommPrecision, types: tuple[ShardingType, ...], dim: int
) -> None:
    made = training(types, dim=dim, batch_size=8)
    tables = tuple(
        dataclasses.replace(each, ids_per_sample=2.0, ids_per_sample_kind="fixed") for each in made.workload.tables
    )
    model = dataclasses.replace(model_of(made), tables=tables, dense=f"{__name__}:Linear", bottom=(), top=())
    made = change(made, model=model)
    coded = change(
        made,
        qcomms=QComms(
            forward_precision=precision,
            backward_precision=precision,
            fp8_quantize_dim=8 if precision == "fp8" else None,
        ),
    )
    plain, found = (losses(play_ready(one)) for one in (made, coded))
    differences = [abs(one - other) for one, other in zip(plain, found, strict=True)]
    bounds = allow(coded)
    assert max(differences) > 0
    assert all(difference <= bound for difference, bound in zip(differences, bounds, strict=True))
    assert bounds[-1] < 0.5 * abs(plain[-1])  # gradients that are not divided, or twice, make more of a difference


@pytest.mark.parametrize(
    ("given", "types", "sentences"),
    [
        (
            QComms(backward_precision="int8"),
            ("row_wise",),
            [
                "test.toml: qcomms.backward_precision = 'int8': expected 'fp32', 'fp16', 'bf16' or 'fp8', because sums"
                " of row_wise tables travel (t0, t1, t2, t3), which int8 cannot add"
            ],
        ),
        (
            QComms(forward_precision="int8"),
            ("table_wise",),
            [
                "test.toml: qcomms.forward_precision = 'int8': expected a multiple of 32 elements for each rank, which"
                " share a scale, but rank 0 sends 6 samples x 8 columns of table_wise tables"
            ],
        ),
        (
            QComms(backward_precision="fp8", fp8_quantize_dim=28),
            ("table_row_wise",),
            [
                "test.toml: qcomms.backward_precision = 'fp8': expected a multiple of 28 elements for each rank, which"
                " share a scale, but host 0 sends 6 samples x 16 columns of table_row_wise tables"
            ],
        ),
    ],
    ids=["sums", "parts", "hosts"],
)
def test_qcomms_that_torchrec_lacks_raise_one_sentence_each(
    given: QComms, types: tuple[ShardingType, ...], sentences: list[str]
) -> None:
    made = change(training(types), qcomms=given)
    with pytest.raises(ScenarioError) as error:
        DlrmProgram(made)
    assert list(error.value.sentences) == sentences


def test_sequences_of_parts_of_rows_are_refused() -> None:
    made = change(mix(("sequence",), ("row_wise",)), qcomms=QComms(forward_precision="int8"))
    with pytest.raises(ScenarioError) as error:
        DlrmProgram(made)
    assert error.value.sentences == (
        "test.toml: qcomms.forward_precision = 'int8': expected rows of a multiple of 32 elements, which share a scale,"
        " but of the sequence t0 rows of 8 columns travel",
    )


def test_a_host_alone_adds_nothing_that_travels() -> None:
    """Sums of int8 are refused where they travel: not within one GPU, as TorchRec exchanges nothing there."""
    plain = dataclasses.replace(training(("row_wise",)), cluster=cluster(1, 1))
    made = change(plain, qcomms=INT8)
    assert losses(play_ready(made)) == losses(play_ready(plain))

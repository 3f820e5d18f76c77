from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from reports.analysis import by_role as names
from reports.analysis.by_role import WHATS, by_what, utilisation, what
from reports.analysis.step_breakdown import utilisation_of
from reports.run import Run
from reports.sections.run.glance import LETTERS
from reports.sections.run.headline import arithmetic
from reports.store.roles_by_label import role_of
from reports.study.measures import measures_of
from scenarios.seam import roles
from scenarios.seam.roles import ROLES
from scenarios.seam.trace import Recording, Span
from scenarios.sparse import input_dist, output_dist
from tests.reports import shown as run_tables
from tests.reports.recordings import PATIENT, SCENARIO, by_hand, info, recordings, span

PEAKS = {"float32": 50e9, "bfloat16": 200e9}
ON_GPU = {**SCENARIO, "cluster": {"hosts": 2, "host": {"gpus": 1, "gpu": {"flops_per_s": PEAKS}}}}
CALL = {"group": "world", "call": 0}


@pytest.mark.parametrize(
    ("kind", "kernel", "label", "expected"),
    [
        ("compute", "gemm", "dense.forward.1", names.DENSE),
        ("compute", "module", "tower.backward.0", names.DENSE),
        ("compute", "module", "dense.update", names.OPTIMIZER),
        ("compute", "optimizer", "data_parallel.update", names.OPTIMIZER),
        ("compute", "embedding_lookup", "table_wise.lookup", names.LOOK_UPS),
        ("compute", "embedding_update", "table_row_wise.update", names.TABLE_UPDATES),
        ("compute", "elementwise", "table_wise.gradients", names.PACKING),
        ("compute", "permute", "dense.gradients.bucket", names.PACKING),
        ("compute", "elementwise", "over.gradients.mean.divide", names.PACKING),
        ("compute", "permute", f"table_wise.{input_dist.LABEL}.recat", names.PACKING),
        ("compute", "gemm", "powersgd.compress", names.COMPRESSION),
        ("compute", "qr", "powersgd.orthogonalise", names.COMPRESSION),
        ("compute", "data_loader", "data.load", names.INPUT),
        ("compute", "reduction", "checksum", names.OTHER),
        ("compute", "", "a profiler's", names.OTHER),
        ("all_to_all_single", "", f"table_wise.{input_dist.LABEL}.values", names.IDS),
        ("all_to_all_single", "", f"table_wise.{output_dist.LABEL}.all_to_all", names.EMBEDDINGS),
        ("reduce_scatter_tensor", "", f"row_wise.{output_dist.LABEL}.reduce_scatter", names.EMBEDDINGS),
        ("all_gather_into_tensor", "", f"row_wise.{output_dist.LABEL_BACKWARD}.all_gather", names.GRADIENTS),
        ("all_to_all_single", "", "exchange", names.EXCHANGES),
        ("all_reduce", "", "dense.gradients.mean", names.REDUCTIONS),
        ("all_gather_into_tensor", "", "tower.layers.0.gather", names.REDUCTIONS),
        ("send", "", "", names.TRANSFERS),
        ("host", "", "", names.HOST),
    ],
)
def test_without_roles_a_span_is_what_its_kind_kernel_and_label_say(
    kind: str, kernel: str, label: str, expected: str
) -> None:
    assert what(kind, kernel, role_of(kind, kernel, label, "main")) == expected


def test_labels_say_the_roles_that_programs_give_now() -> None:
    assert role_of("all_reduce", "", "powersgd.P", "gradients") == roles.COMPRESSION
    assert role_of("all_reduce", "", "powersgd.vanilla", "gradients") == roles.REDUCTION
    assert role_of("compute", "optimizer", "update", "main") == roles.OPTIMIZER


@pytest.mark.parametrize(
    ("kind", "kernel", "role", "expected"),
    [
        ("compute", "module", roles.DENSE, names.DENSE),
        ("compute", "embedding_lookup", roles.DENSE, names.LOOK_UPS),  # most of a module of embeddings alone
        ("compute", "embedding_lookup", roles.OPTIMIZER, names.OPTIMIZER),
        ("compute", "elementwise", roles.IDS, names.PACKING),
        ("compute", "embedding_lookup", roles.ROWS, names.LOOK_UPS),  # rows that came home are summed in their bags
        ("compute", "permute", "", names.PACKING),
        ("compute", "anyone's", "", names.OTHER),
        ("all_to_all_single", "", roles.SIZES, names.IDS),
        ("reduce_scatter_tensor", "", roles.ROWS, names.EMBEDDINGS),
        ("all_gather", "", roles.GRADIENTS, names.GRADIENTS),
        ("all_reduce", "", roles.COMPRESSION, names.REDUCTIONS),
        ("broadcast", "", roles.PARAMETERS, names.TRANSFERS),
        ("all_to_all_single", "", "", names.EXCHANGES),
    ],
)
def test_a_span_is_what_its_role_says_or_else_its_kind(kind: str, kernel: str, role: str, expected: str) -> None:
    assert what(kind, kernel, role) == expected


def test_every_role_but_other_says_what_a_computation_is() -> None:
    assert names.OTHER not in {what("compute", "anyone's", role) for role in ROLES if role != roles.OTHER}


def test_roles_have_unique_letters() -> None:
    assert set(LETTERS) == set(WHATS)
    assert len(set(LETTERS.values())) == len(WHATS)


def parts(*spans: Span, world_size: int) -> dict[str, int]:
    run = Run.of(Recording(info=info(world_size=world_size), spans=list(spans)))
    found = by_what(run.critical_path_of(0))
    return dict(zip(found["what"], found["duration_ns"], strict=True))


def step(rank: int, ends: int, until: int = 70) -> list[Span]:
    """Return the spans of a rank that computes until `ends` and reduces until 70 ns."""
    return [
        span(rank, "step", 0, until),
        span(rank, "compute", 0, ends, label="forward", kernel="gemm"),
        span(rank, "all_reduce", ends, 70, label="sum", **CALL),
    ]


def slow_rank(count: int) -> list[Span]:
    """Record a first rank that computes 60 ns, others 40; all reduce for 10 ns; then the first goes on for 30."""
    spans = [*step(0, 60, until=100), *(one for rank in range(1, count) for one in step(rank, 40))]
    return [*spans, span(0, "compute", 70, 100, label="update", kernel="optimizer", launch_ns=4)]


def test_computation_that_others_wait_for_counts_as_waiting() -> None:
    # Of 60 ns before the reduction 20, and all after it, when the others have ended the step.
    assert parts(*slow_rank(2), world_size=2) == {"dense": 40, "reductions": 10, "waiting": 50}
    assert parts(*slow_rank(3), world_size=3) == {"dense": 40, "reductions": 10, "waiting": 50}


def test_a_few_that_wait_are_no_waiting_unless_they_represent_others() -> None:
    late = [one for rank in (0, 2, 3) for one in step(rank, 60)]
    assert parts(*late, *step(1, 40), world_size=4) == {"dense": 60, "reductions": 10}
    alike = [dataclasses.replace(one, rank_count=3) for one in step(1, 40)]
    assert parts(*late, *alike, world_size=6) == {"dense": 40, "reductions": 10, "waiting": 20}


def test_waiting_for_launches_counts_as_launching() -> None:
    assert parts(
        span(0, "step", 0, 50), span(0, "compute", 0, 50, label="forward", kernel="gemm", launch_ns=30), world_size=1
    ) == {"dense": 20, "launching": 30}


@PATIENT
@given(recordings())
def test_parts_add_up_to_the_step(recording: Recording) -> None:
    run = Run.of(recording)
    for step in run.steps["step"]:
        path = run.critical_path_of(step)
        found = by_what(path)
        assert found["duration_ns"].sum() == path["duration_ns"].sum()
        assert (found["duration_ns"] > 0).all()
        assert not len(found) or found["share"].sum() == pytest.approx(1)


def test_by_hand() -> None:
    # Rank 0 stands still for rank 1 for nothing: it computes until 70. It ends 5 ns before rank 1.
    found = by_what(Run.of(by_hand()).critical_path_of(0))
    assert found[["what", "duration_ns"]].to_numpy().tolist() == [["dense", 60], ["reductions", 35], ["waiting", 5]]


def computing(again: float = 0.0, **scenario: object) -> Run:
    """Two ranks: the model's 3000 FLOPs in float32 and 2000 in bfloat16 in the mean, and others that do not count.

    `again` more in bfloat16 are recomputed.
    """
    attention: dict[str, Any] = {"label": "dense.backward.0", "kernel": "attention", "dtype": "bfloat16"}
    attention |= {"flops": 2000.0 + again, "recomputed_flops": again}
    spans = []
    for rank, flops in ((0, 2000.0), (1, 4000.0)):
        spans += [
            span(rank, "step", 0, 1000),
            span(rank, "compute", 0, 100, label="dense.forward.0", kernel="gemm", dtype="float32", flops=flops),
            span(rank, "compute", 100, 200, **attention),
            span(rank, "compute", 200, 300, role="compression", kernel="gemm", dtype="float32", flops=7e6),
            span(rank, "compute", 300, 400, label="t.lookup", kernel="embedding_lookup", dtype="float32", flops=7e6),
            span(rank, "compute", 400, 500, role="optimizer", kernel="module", dtype="float32", flops=7e6),
        ]
    return Run.of(Recording(info=info(scenario=scenario or ON_GPU), spans=spans))


def test_mfu_is_the_time_of_the_model_s_products_at_the_peak_over_the_step() -> None:
    found = utilisation_of(computing())
    assert found is not None
    assert found.flops_per_s == pytest.approx(5000 / 1000e-9)
    assert found.mfu == pytest.approx((3000 / 50e9 + 2000 / 200e9) / 1000e-9)
    assert found.peak_flops_per_s == pytest.approx(found.flops_per_s / found.mfu)
    assert found.dtypes == ("bfloat16", "float32")
    assert (found.hfu, found.hardware_flops_per_s) == (found.mfu, found.flops_per_s)


def test_hfu_counts_recomputation_and_mfu_does_not() -> None:
    once, again = utilisation_of(computing()), utilisation_of(computing(again=1000.0))
    assert once is not None
    assert again is not None
    assert (again.mfu, again.flops_per_s, again.peak_flops_per_s) == pytest.approx(
        (once.mfu, once.flops_per_s, once.peak_flops_per_s)
    )
    assert again.hfu == pytest.approx((3000 / 50e9 + 3000 / 200e9) / 1000e-9)
    assert again.hardware_flops_per_s == pytest.approx(6000 / 1000e-9)
    (line,) = arithmetic(computing(again=1000.0))
    assert line == (
        "5.00 GFLOP/s of the model per GPU, MFU 7.0 %, HFU 7.5 % of 71.4 GFLOP/s"
        " (bfloat16, float32; 6.00 GFLOP/s with recomputation)"
    )
    said = run_tables.as_json(computing(again=1000.0))["arithmetic"]
    assert said == {**again._asdict(), "dtypes": list(again.dtypes)}
    assert measures_of(computing(again=1000.0))["hfu"] == again.hfu


def test_without_a_peak_there_is_no_mfu_and_without_products_nothing() -> None:
    found = utilisation_of(computing(**SCENARIO))
    assert found is not None
    assert found.flops_per_s == pytest.approx(5000 / 1000e-9)
    assert np.isnan(found.mfu)
    assert utilisation_of(Run.of(by_hand())) is None
    tf32 = computing().flops_of([0]).replace("bfloat16", "tf32")
    both = utilisation(tf32, 1000.0, ON_GPU)
    assert both is not None
    assert both.mfu == pytest.approx(5000 / 50e9 / 1000e-9)  # products in TF32 run at float32's rate where it has none

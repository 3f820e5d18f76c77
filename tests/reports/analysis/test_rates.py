from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reports.analysis.rates import utilisation
from reports.analysis.step_breakdown import utilisation_of
from reports.run import Run
from scenarios.seam.trace import Recording, Span, Thinned
from tests.reports.recordings import SCENARIO, by_hand, info, span, with_spans

PEAKS = {"float32": 50e9, "bfloat16": 200e9}
ON_GPU = {**SCENARIO, "cluster": {"hosts": 2, "host": {"gpus": 1, "gpu": {"flops_per_s": PEAKS}}}}


def calls(kind: str, *, ranks: int = 4, hosts: bool = True, **changes: int) -> list[Span]:
    """One call of 1000 bytes, which all but the first enter at 0, the first at 50; it ends at 150 ns."""
    return [
        span(rank, "step", 0, 150, host=rank if hosts else 0, **changes)
        if number
        else span(
            rank,
            kind,
            0 if rank else 50,
            150,
            label="x",
            group="world",
            call=0,
            host=rank if hosts else 0,
            bytes_in=250 if kind.startswith("all_gather") else 1000,
            bytes_out=1000,
            **changes,
        )
        for rank in range(ranks)
        for number in (0, 1)
    ]


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2 * 3 / 4),
        ("all_gather_into_tensor", 3 / 4),
        ("reduce_scatter_tensor", 3 / 4),
        ("all_to_all_single", 3 / 4),
        ("broadcast", 1),
    ],
)
def test_bandwidths_are_those_of_nccl_tests_since_the_last_rank_entered(kind: str, factor: float) -> None:
    run = Run.of(with_spans(by_hand(world_size=4), *calls(kind)))
    (row,) = run.operations.to_dict("records")
    assert (row["members"], row["size_bytes"], row["moving_ns"]) == (4, 1000, 100)
    assert row["algbw_bytes_per_s"] == 1000 / 100e-9
    assert row["busbw_bytes_per_s"] == pytest.approx(factor * row["algbw_bytes_per_s"])


def test_what_is_no_collective_with_bytes_has_no_bandwidth() -> None:
    for spans in (calls("barrier"), calls("all_reduce", ranks=1), [span(0, "step", 0, 9), span(0, "send", 0, 9)]):
        assert Run.of(with_spans(by_hand(world_size=4), *spans)).operations["busbw_bytes_per_s"].isna().all()


def test_representatives_count_as_the_ranks_that_they_represent_but_not_within_a_host() -> None:
    across = Run.of(with_spans(by_hand(world_size=8), *calls("all_reduce", ranks=2, rank_count=4)))
    inside = Run.of(with_spans(by_hand(world_size=8), *calls("all_reduce", ranks=2, hosts=False, rank_count=4)))
    assert across.operations["members"].tolist() == [8]
    assert inside.operations["members"].tolist() == [2]


def test_where_ranks_were_left_out_bandwidths_are_not_known() -> None:
    recording = with_spans(by_hand(world_size=4), *calls("all_reduce"))
    kept = Thinned(ranks=(0, 1, 2), steps=None, left_out=1, phases=())
    run = Run.of(dataclasses.replace(recording, info=dataclasses.replace(recording.info, thinned=kept)))
    assert run.operations["busbw_bytes_per_s"].isna().all()
    assert (run.operations["mean_ns"] > 0).all()


def computing(**scenario: object) -> Run:
    """Two ranks: the model's 3000 FLOPs in float32 and 2000 in bfloat16 in the mean, and others that do not count."""
    spans = []
    for rank, flops in ((0, 2000.0), (1, 4000.0)):
        spans += [
            span(rank, "step", 0, 1000),
            span(rank, "compute", 0, 100, label="dense.forward.0", kernel="gemm", dtype="float32", flops=flops),
            span(
                rank, "compute", 100, 200, label="dense.backward.0", kernel="attention", dtype="bfloat16", flops=2000.0
            ),
            span(rank, "compute", 200, 300, label="powersgd.compress", kernel="gemm", dtype="float32", flops=7e6),
            span(rank, "compute", 300, 400, label="t.lookup", kernel="embedding_lookup", dtype="float32", flops=7e6),
            span(rank, "compute", 400, 500, label="dense.update", kernel="module", dtype="float32", flops=7e6),
        ]
    return Run.of(Recording(info=info(scenario=scenario or ON_GPU), spans=spans))


def test_mfu_is_the_time_of_the_model_s_products_at_the_peak_over_the_step() -> None:
    found = utilisation_of(computing())
    assert found is not None
    assert found.flops_per_s == pytest.approx(5000 / 1000e-9)
    assert found.mfu == pytest.approx((3000 / 50e9 + 2000 / 200e9) / 1000e-9)
    assert found.peak_flops_per_s == pytest.approx(found.flops_per_s / found.mfu)
    assert found.dtypes == ("bfloat16", "float32")


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

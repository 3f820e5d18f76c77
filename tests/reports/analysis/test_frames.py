from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from reports.analysis import frames
from reports.run import Run
from reports.store.columns import TABLES, TEXT
from scenarios.seam.trace import LinkRow, MemoryRow, Metric, Recording, Span
from tests.reports.recordings import (
    PATIENT,
    by_hand,
    info,
    of_script,
    on_nccl,
    recordings,
    span,
    with_changes,
    with_loads,
    with_spans,
)


@pytest.fixture(scope="module")
def run() -> Run:
    return Run.of(with_changes(of_script(with_loads(on_nccl(by_hand(), formula_ns=28)))))


def row(frame: pd.DataFrame, **where: object) -> dict[str, object]:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return dict(zip(frame.columns, frame.itertuples(index=False, name=None).__next__(), strict=True))


def test_an_operation_is_counted_per_rank_and_step(run):
    assert row(run.operations, label="gradients") == {
        "kind": "all_reduce",
        "label": "gradients",
        "stream": "main",
        "part": "communication",
        "ranks": 2,
        "steps": 1,
        "calls": 2,
        "calls_per_step": 1.0,
        "median_ns": 45.0,  # of 55 and 35
        "mean_ns": 45.0,
        "max_ns": 55,
        "bytes_in": 1000.0,
        "bytes_out": 1000.0,
        "bytes_sent": 1000.0,
        "hidden_ns": 15.0,  # 30 on rank 0 under "backward", nothing on rank 1
        "exposed_ns": 30.0,
        "wait_ns": 0.0,
        "launch_ns": 0.0,
        "wait_share": 0.0,
        "hidden_share": 15 / 45,
        "members": 2.0,
        "size_bytes": 1000.0,
        "moving_ns": 35.0,
        "algbw_bytes_per_s": 1000 / 35 * 1e9,
        "busbw_bytes_per_s": 1000 / 35 * 1e9,  # of two ranks 2 (2 - 1) / 2 of it
        "role": "reduction",
    }


def test_calls_of_one_step_add_up_and_alike_ranks_count_as_often_as_they_are():
    spans = [
        span(0, "all_reduce", 0, 10, label="x", bytes_sent=5),
        span(0, "all_reduce", 10, 30, label="x", bytes_sent=7),
        span(1, "all_reduce", 0, 60, label="x", bytes_sent=9, rank_count=3),
    ]
    only = row(Run.of(with_spans(by_hand(world_size=4), *spans)).operations, label="x")
    assert (only["ranks"], only["calls"], only["calls_per_step"]) == (4, 5, 1.25)
    assert (only["median_ns"], only["mean_ns"], only["max_ns"]) == (60.0, (30 + 3 * 60) / 4, 60)
    assert only["bytes_sent"] == (12 + 3 * 9) / 4


def test_computation_of_another_rank_hides_nothing():
    spans = [span(0, "all_reduce", 0, 10), span(1, "compute", 0, 10), span(0, "compute", 8, 20, stream="side")]
    assert frames.Overlaps.of(Run.of(with_spans(by_hand(), *spans)).spans).hidden_ns.tolist() == [2, 0, 0]


def test_who_has_entered_a_collective_waits_for_the_last_member_unless_it_does_something_else():
    call = {"label": "x", "group": "world", "call": 0}
    spans = [
        span(0, "step", 0, 50),
        span(0, "all_reduce", 0, 50, **call),
        span(0, "compute", 10, 15, stream="side"),
        span(0, "send", 15, 18, stream="other"),
        span(1, "step", 0, 50),
        span(1, "compute", 0, 40),
        span(1, "all_reduce", 40, 50, **call),
    ]
    run = Run.of(with_spans(by_hand(), *spans))
    columns = ["compute_ns", "transfer_ns", "wait_ns", "exposed_ns", "idle_ns"]
    assert run.ranks[columns].to_numpy().tolist() == [[5, 3 + 10, 32, 45, 0], [40, 10, 0, 10, 0]]
    only = row(run.operations, label="x")
    # Of an operation: also what another stream transfers meanwhile.
    assert (only["mean_ns"], only["wait_ns"], only["wait_share"]) == (30.0, 17.5, 17.5 / 30)
    late = run.late_ranks_of([0])
    assert late.to_dict("records") == [{"rank": 1, "rank_count": 1, "wait_ns": 16.0, "share": 1.0}]


def test_a_formula_stands_beside_a_call_from_its_last_member_s_entry(run):
    assert row(run.formulas, label="compressed gradients") == {
        "kind": "all_reduce",
        "label": "compressed gradients",
        "stream": "main",
        "calls": 2,
        "median_ns": 35.0,  # of 55 on rank 0, which waits for rank 1
        "formula_ns": 28.0,
        "difference": 0.25,
    }


def test_a_call_counts_once_and_by_the_last_of_its_members_whatever_they_call_it():
    def member(rank: int, call: int, start: int, end: int, label: str = "x") -> Span:
        return span(rank, "all_reduce", start, end, label=label, group="world", call=call, formula_ns=10)

    spans = [
        *(member(0, 0, 0, 30), member(1, 0, 10, 30, "y")),
        *(member(0, 1, 30, 60), member(1, 1, 40, 60), member(2, 1, 35, 60)),
        *(member(0, 2, 60, 90), member(1, 2, 65, 90)),
        span(0, "all_reduce", 0, 99, label="x", step=-1, group="other", call=0, formula_ns=10),
        span(0, "send", 90, 95),
    ]
    formulas = Run.of(with_spans(by_hand(), *spans)).formulas
    assert formulas[["label", "calls", "median_ns", "difference"]].to_numpy().tolist() == [
        ["x", 3, 20.0, 1.0],
        ["y", 1, 20.0, 1.0],
    ]


@PATIENT
@given(recordings())
def test_hidden_and_exposed_add_up_to_the_duration(recording):
    run = Run.of(recording)
    overlaps = frames.Overlaps.of(run.spans)
    hidden, wait = overlaps.hidden_ns, overlaps.wait_ns
    duration = (run.spans["end_ns"] - run.spans["start_ns"]).to_numpy()
    assert np.all((hidden >= 0) & (wait >= 0) & (hidden + wait <= duration))
    operations = run.operations
    np.testing.assert_allclose(operations["hidden_ns"] + operations["exposed_ns"], operations["mean_ns"])
    in_steps = (run.spans["step"] >= 0) & (run.spans["kind"] != "step")
    total = (operations["mean_ns"] * operations["calls"] / operations["calls_per_step"]).sum()
    np.testing.assert_allclose(total, duration[in_steps.to_numpy()].sum())


@PATIENT
@given(recordings())
def test_a_rank_computes_communicates_or_idles(recording):
    ranks = Run.of(recording).ranks
    busy = ranks["compute_ns"] + ranks["communication_ns"] - ranks["hidden_ns"]
    assert (busy + ranks["idle_ns"]).tolist() == ranks["step_ns"].tolist()
    assert (ranks["hidden_ns"] + ranks["exposed_ns"]).tolist() == ranks["communication_ns"].tolist()
    assert (ranks["transfer_ns"] + ranks["wait_ns"]).tolist() == ranks["exposed_ns"].tolist()
    assert bool((ranks[["compute_ns", "hidden_ns", "transfer_ns", "wait_ns", "idle_ns"]] >= 0).all(axis=None))


def test_a_step_lasts_from_its_first_rank_to_its_last(run):
    assert row(run.steps, step=1) == {
        "step": 1,
        "phase": 1,
        "ranks": 2,
        "start_ns": 100,
        "end_ns": 200,
        "step_ns": 100,
        "fastest_rank_ns": 95,
        "slowest_rank_ns": 100,
        "first_rank": 0,
        "last_rank": 1,
        "samples_per_s": 2 * 64 / 100e-9,
        "complete": True,
        "steady": True,
        "warm_up": False,
    }
    assert run.steps["phase"].tolist() == [0, 1, 1]


def test_a_step_that_a_rank_did_not_end_is_incomplete_and_without_a_batch_has_no_rate():
    spans = [span(0, "step", 0, 10), span(1, "step", 0, 12), span(0, "step", 12, 20, step=1)]
    steps = Run.of(with_spans(by_hand(scenario={}), *spans)).steps
    assert steps["complete"].tolist() == [True, False]
    assert steps["samples_per_s"].isna().all()


def test_ranks_say_how_they_spent_their_steps(run):
    assert row(run.ranks, rank=0) == {
        "rank": 0,
        "host": 0,
        "rank_count": 1,
        "steps": 3,
        "step_ns": 285,
        "compute_ns": 210,
        "communication_ns": 165,
        "hidden_ns": 90,
        "exposed_ns": 75,
        "transfer_ns": 75,
        "wait_ns": 0,
        "idle_ns": 0,
        "bytes_sent": 3000,
        "compute_over_mean": 210 / ((210 + 195) / 2),
    }


def test_links_are_loaded_by_what_they_could_have_carried(run):
    assert run.links["link"].tolist() == ["nic1", "nic0", "hbm0"]
    assert run.links["utilisation"].tolist() == [0.5, 0.25, 0.1]
    assert run.links["busy_share"].tolist() == [0.5, 0.25, 0.1]  # nic0 needs 25 ns for its bytes, busy for 20
    assert run.links["busy_utilisation"].tolist() == [1.0, 1.0, 1.0]
    assert row(run.link_classes, link_class="nic") == {
        "link_class": "nic",
        "links": 2,
        "bytes_carried": 225.0,
        "mean_utilisation": 0.375,
        "peak_utilisation": 0.5,
        "busy_utilisation": 1.0,
        "hottest_link": "nic1",
        "hottest_direction": "out",
    }


def test_memory_comes_fullest_first(run):
    assert run.rank_memory["rank"].tolist() == [1, 0]
    assert row(run.rank_memory, rank=1) == {
        "rank": 1,
        "rank_count": 1,
        "used_bytes": 12288,
        "capacity_bytes": 16384,
        "free_bytes": 4096,
        "used_share": 0.75,
        "phase": "always",
    }


def test_a_rank_is_as_full_as_its_fullest_phase_of_a_step():
    def part(name, size_bytes, phases="always"):
        return MemoryRow(rank=0, part=name, size_bytes=size_bytes, capacity_bytes=100, phases=phases)

    parts = [part("weights", 30), part("activations", 40, "forward backward"), part("temporaries", 5, "forward")]
    parts += [part("gradients", 30, "backward update"), part("temporaries", 25, "update")]
    run = Run.of(Recording(info=info(), memory=parts))
    assert row(run.rank_memory, rank=0)["used_bytes"] == 30 + 40 + 30
    assert row(run.rank_memory, rank=0)["phase"] == "backward"
    assert frames.memory_at_peak(run.memory, run.rank_memory)["part"].tolist() == [
        "weights",
        "activations",
        "gradients",
    ]


def test_metrics_are_taken_over_ranks():
    recording = Recording(
        info=info(),
        metrics=[Metric(rank=rank, step=4, name="loss", value=value) for rank, value in ((0, 1.0), (1, 3.0))],
    )
    assert row(Run.of(recording).metrics_by_step, step=4) == {
        "step": 4,
        "name": "loss",
        "ranks": 2,
        "mean": 2.0,
        "min": 1.0,
        "max": 3.0,
    }


def test_dtypes_are_fixed_and_frames_of_runs_concatenate(run):
    empty = Run.of(Recording(info=info()))
    for name, frame in empty.derived().items():
        full = run.derived()[name]
        # of predictions on GPUs or of modules alone, and of measured scripts, which this one is not
        assert len(full) > 0 or name in ("kernels", "operators", "layers", "unrecorded_steps"), name
        assert dict(frame.dtypes) == dict(full.dtypes), name
        assert dict(pd.concat([full, frame, full]).dtypes) == dict(full.dtypes), name
        assert set(map(str, full.dtypes)) <= {"int64", "float64", "bool", str(pd.Series([""], dtype=TEXT).dtype)}, name


def test_stored_columns_are_the_trace_s_own(run):
    for name, kind in TABLES.items():
        if name != "links":
            assert list(getattr(run, name)) == [field.name for field in dataclasses.fields(kind)]
    assert list(run.links)[:8] == [field.name for field in dataclasses.fields(LinkRow)]

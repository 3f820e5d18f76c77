"""What computations took: means by label and call of real runs and of traces, what is left out, what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.kineto import recording as kineto
from reports.kineto.compute_times import Times, measure
from reports.run import Run
from reports.store import replace
from reports.store import run_folder as store
from reports.writer import write
from scenarios.config.compute_times import ComputeTime, read_compute_times
from scenarios.kernel_tables.file import read_table
from scenarios.seam.operations.as_json import text_of
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.rows import Gather
from scenarios.seam.trace import Recording, Span
from tests.commands import unfold
from tests.reports.kineto.events import OLD, event, kernel, launch
from tests.reports.recordings import PATIENT, by_hand, info, span
from tests.reports.refusals import refusal
from twinstep.reporting.cli import main


def step(number: int, *computations: tuple[str, int], rank: int = 0, **changes: Any) -> list[Span]:
    """A step whose computations, each a label and its ns, come one after the other."""
    spans, now = [], 10_000 * number
    for sequence, (label, took) in enumerate(computations, start=1):
        at = {"step": number, "sequence": 100 * number + sequence, "label": label, "kernel": "gemm", "flops": 1.0}
        spans.append(span(rank, "compute", now, now + took, **{**at, **changes}))
        now += took
    return [span(rank, "step", 10_000 * number, now, step=number, sequence=100 * number), *spans]


def run(*steps: list[Span], **changes: Any) -> Run:
    """Of the real world, unless changed."""
    spans = [one for each in steps for one in each]
    return Run.of(Recording(info=info(**{"world": "real", **changes}), spans=spans))


def rows(times: Times) -> list[tuple[Any, ...]]:
    return list(times.rows.itertuples(index=False, name=None))


# Of our own runs


def test_a_label_has_a_mean_for_each_of_its_calls_in_a_step():
    """Two buckets of different sizes under one label keep their times, in the order of a step."""
    steps = [step(n, ("bucket", 100 + n), ("forward", 50), ("bucket", 1000 + 2 * n)) for n in range(4)]
    found = measure([("r", run(*steps))])
    assert rows(found) == [
        ("bucket", 1, 0.102, 0.016, 3),
        ("forward", 1, 0.05, 0.0, 3),
        ("bucket", 2, 1.004, 0.003, 3),
    ]
    assert found.about == "3 computations of 2 labels in 3 steps"
    assert found.notes == ("r: step 0 left out to warm up (--skip 1)",)


def test_ranks_and_runs_are_one_sample():
    both = run(step(0, ("a", 100)), step(0, ("a", 200), rank=1)), run(step(0, ("a", 600)))
    assert rows(measure([(str(n), one) for n, one in enumerate(both)])) == [("a", 1, 0.3, 2.0, 3)]


def test_calls_are_counted_by_stream():
    main, side = step(0, ("a", 100)), step(0, ("a", 300), stream="side")
    assert rows(measure([("r", run(main, side[1:]))])) == [("a", 1, 0.2, 0.8, 2)]


def test_steps_to_leave_out_are_the_first_ones():
    steps = [step(n, ("a", 100 * (n + 1))) for n in range(3)]
    known = {skip: measure([("r", run(*steps))], skip).rows["time_us"].tolist() for skip in (None, 0, 2)}
    assert known == {None: [0.25], 0: [0.2], 2: [0.3]}
    assert measure([("r", run(steps[0]))]).notes == ()  # of a single step nothing can be left out
    sentence = "r: has 3 steps; expected more than the 3 that --skip leaves out"
    assert refusal(measure, [("r", run(*steps))], skip=3) == sentence


def test_empty_computations_count_as_calls_but_not_in_the_mean():
    idle = step(0, ("a", 5), rank=1, flops=0.0)
    mixed = step(0, ("a", 100), ("a", 200))
    found = measure([("r", run(mixed, idle))])
    assert rows(found) == [("a", 1, 0.1, 0.0, 1), ("a", 2, 0.2, 0.0, 1)]
    assert found.notes == ("r: 1 computation left out that had nothing to do",)
    assert refusal(measure, [("r", run(idle))]) == "r: no computation with a label in step 0; expected at least one"


def test_computations_outside_steps_are_not_in_it():
    assert rows(measure([("r", run(step(0, ("a", 100)), step(-1, ("b", 100))))])) == [("a", 1, 0.1, 0.0, 1)]


def test_predictions_and_other_scenarios_are_refused_unless_asked_for():
    real, sim = run(step(0, ("a", 100))), run(step(0, ("a", 300)), world="sim")
    other = run(step(0, ("a", 300)), digest="d2")
    sentence = "s: is a prediction, whose times are the model's; expected a measured run, or --any"
    assert refusal(measure, [("r", real), ("s", sim)]) == sentence
    assert refusal(measure, [("r", real), ("o", other)]) == (
        "o: of another scenario than r; expected one file of times for each, or --any"
    )
    found = measure([("r", real), ("s", sim), ("o", other)], any_runs=True)
    assert found.notes == (
        "s: is a prediction: these times are the model's, not measured",
        "o: of another scenario than r",
    )
    assert found.rows["samples"].tolist() == [3]


def test_a_run_that_ended_early_is_said():
    short = run(step(0, ("a", 100)), complete=False, error="rank 1 died")
    assert measure([("r", short)]).notes == ("r: ended early: rank 1 died",)


# Of a profiler's traces


def test_an_annotations_kernels_are_one_call(gpus):
    """forward launches a copy of 15.5 us outside `lookup` and a product of 200 us; rank 1 is a little slower."""
    found = measure([("gpus", Run.of(gpus.recording))])
    own = {name: [p for p in gpus.pieces if (p.label, p.step, p.kind) == (name, 6, "compute")]
           for name in ("forward", "lookup", "Optimizer.step#Adam.step")}  # fmt: skip
    took = {name: sum(p.end_ns - p.start_ns for p in pieces) / 2 for name, pieces in own.items()}  # of two ranks
    assert [(label, call, time_us) for label, call, time_us, *_ in rows(found)] == [
        (name, 1, round(took[name]) / 1000) for name in ("forward", "lookup", "Optimizer.step#Adam.step")
    ]
    assert took["forward"] == 215_500
    assert found.notes[0] == "gpus: step 5 left out to warm up (--skip 1)"
    assert found.notes[1].startswith("gpus: 4 kernels left out that no annotation or operator was around, ")


def test_openings_of_an_annotation_are_calls_even_side_by_side(trace):
    """Two openings of `bucket`, of two kernels that overlap for 5 us, and of one; the gap between them is nobody's."""
    kernels = [(1, 100, 20, 7), (2, 115, 10, 9), (3, 200, 40, 7)]  # number, begin, us, stream
    path = trace(
        event("user_annotation", "bucket", 10, 10), event("user_annotation", "bucket", 20, 10),
        *(launch(7 + 6 * n, n) for n, *_ in kernels),
        *(kernel(f"k{n}", at, us, stream=stream, correlation=n) for n, at, us, stream in kernels),
    )  # fmt: skip
    found = measure([("t", Run.of(kineto.read([path], "t").recording))])
    assert rows(found) == [("bucket", 1, 25.0, 0.0, 1), ("bucket", 2, 40.0, 0.0, 1)]


def test_openings_link_no_ranks(gpus, tmp_path):
    """Arrows join the members of collectives alone, though computations have numbers, too."""
    recording = gpus.recording
    write(recording, tmp_path / "run")
    events = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    assert {one.call for one in recording.spans if one.kind == "compute"} >= {0}
    calls = {(one.group, one.call) for one in recording.spans if one.group}
    assert len([event for event in events if event["ph"] == "s"]) == len(calls)  # of two members each


def test_a_trace_without_annotations_has_no_times():
    old = Run.of(kineto.read([OLD], "old").recording)
    assert refusal(measure, [("old", old)]) == "old: no computation with a label in step 0; expected at least one"


# The file, and the command


@pytest.mark.slow
@PATIENT
@given(
    st.dictionaries(
        st.tuples(st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1), st.integers(1, 2)),
        st.integers(0, 10**9),
        min_size=1,
    )
)
def test_a_prediction_reads_what_was_written(tmp_path_factory, known):
    """Labels with commas and quotes, too; times to the ns."""
    labels = {label for label, _ in known}
    calls = {(label, call): known.get((label, call), 7) for label in labels for call in (1, 2)}
    steps = step(0, *((label, took) for (label, _), took in calls.items()))
    path = tmp_path_factory.mktemp("times") / "times.csv"
    replace.write_csv(measure([("r", run(steps))]).rows, path)
    times, mistakes = read_compute_times(path)
    assert mistakes == ()
    assert set(times.rows) == {ComputeTime(label=label, call=call, time_ns=ns) for (label, call), ns in calls.items()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording = by_hand(world="real")
    spans = [dataclasses.replace(one, flops=1.0 if one.kind == "compute" else 0.0) for one in recording.spans]
    store.write(dataclasses.replace(recording, spans=spans), "real")
    store.write(by_hand(), "sim")
    return tmp_path


def test_the_command_writes_a_file_and_shows_it(folder, capsys):
    assert main(["times", "real", "--csv", "times.csv"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "note: real: step 0 left out to warm up (--skip 1)\n"
    assert "3 computations of 3 labels in 2 steps" in shown.out
    assert shown.out.endswith("times: times.csv\n")
    assert Path("times.csv").read_text().splitlines() == [
        "label,call,time_us,spread,samples",
        "forward,1,0.05,0.4,4",
        "backward,1,0.03,0.0,2",
        "update,1,0.005,0.0,2",
    ]


def test_the_command_refuses_in_one_sentence_and_writes_nothing(folder, capsys):
    assert main(["times", "sim", "--csv", "times.csv"]) == 2
    sentence = "sim: is a prediction, whose times are the model's; expected a measured run, or --any\n"
    assert capsys.readouterr().err == sentence
    assert not Path("times.csv").exists()
    assert main(["times", "sim", "--csv", "times.csv", "--any", "--skip", "0"]) == 2  # its kernels cost nothing
    Path("times.csv").write_text("mine")
    assert main(["times", "real", "--csv", "times.csv"]) == 2
    assert Path("times.csv").read_text() == "mine"


# A table of operators


ADD, GATHER = (contiguous("add", 1000, "float32"),), (Gather(rows=64, dim=8, dtype="float32", unique=40),)


@pytest.fixture
def described(folder: Path) -> Path:
    """Describe what the computations of the measured run are, but for its backward passes."""
    recording = by_hand(world="real", devices=("NVIDIA H200",))
    of_label = {"forward": text_of(ADD), "update": text_of(GATHER)}
    spans = [
        dataclasses.replace(one, flops=1.0, operations=of_label.get(one.label, "")) if one.kind == "compute" else one
        for one in recording.spans
    ]
    store.write(dataclasses.replace(recording, spans=spans), folder / "described")
    return folder


def test_a_measured_run_becomes_a_table_of_the_operators_that_computations_are(described, capsys):
    assert main(["times", "described", "--table", "t.parquet"]) == 0
    shown = capsys.readouterr()
    assert unfold(shown.err).splitlines() == [
        "note: described: step 0 left out to warm up (--skip 1)",
        "note: described: 77.8 % of the computations' time is in rows; left out: backward 22.2 %",
    ]
    assert shown.out.endswith("table: t.parquet, 2 rows\n")
    found = {row.operations: (row.us, row.calls, row.is_cold) for row in read_table(Path("t.parquet"))}
    assert found == {ADD: (pytest.approx(0.05), 4, False), GATHER: (pytest.approx(0.005), 2, False)}
    columns = pq.read_table("t.parquet", columns=["machine", "date", "source"]).to_pylist()[0]
    assert columns == {
        "machine": "NVIDIA H200",
        "date": by_hand().info.started,
        "source": "computations of run described",
    }


def test_a_table_and_times_are_written_together_and_in_place_of_nothing(described, capsys):
    assert main(["times", "described", "--table", "t.parquet", "--csv", "t.csv"]) == 0
    assert capsys.readouterr().out.endswith("times: t.csv\ntable: t.parquet, 2 rows\n")
    assert len(Path("t.csv").read_text().splitlines()) == 4
    for words, sentence in (
        (["described", "--table", "t.parquet"], "t.parquet"),
        (["described", "--table", "t.csv2"], "--table t.csv2: expected a file whose name ends in .parquet"),
        (["described"], "times: expected --csv FILE.csv, --table FILE.parquet, or both"),
        (["real", "--table", "u.parquet"], "real: no computation of one operator that is described; expected"),
        (["sim", "--table", "u.parquet"], "sim: is a prediction, whose times are the model's"),
    ):
        assert main(["times", *words]) == 2
        assert capsys.readouterr().err.startswith(sentence)
    assert not Path("u.parquet").exists()

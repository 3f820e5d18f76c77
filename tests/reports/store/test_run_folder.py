from __future__ import annotations

import dataclasses
import json
import os
import random
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from reports import writer
from reports.errors import ReportError
from reports.perfetto import trace as perfetto
from reports.run import Run
from reports.store import run_folder as store
from reports.store.columns import LATER_TABLES, TABLES
from reports.store.drafts import check_free
from scenarios.seam.trace import (
    Advice,
    OperatorRow,
    Recording,
    RunInfo,
    Span,
    Thinned,
)
from tests.reports.recordings import (
    PATIENT,
    by_hand,
    info,
    of_script,
    recordings,
    rows_as,
    span,
    thin,
    with_changes,
    with_kernels,
    with_layers,
    with_loads,
    with_spans,
)
from tests.reports.refusals import refusal

FAULT = {"part": {"host": 1, "nic": 0}, "speed": 0.5, "begin_ns": 0, "end_ns": None}
ADVICE: dict[str, Any] = {"change": "pad", "made_by": "zeros", "saved_ns": 1.5, "share": 0.1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return writer.write(by_hand(), tmp_path / "run")


def as_spans(run: Run) -> list[Span]:
    return rows_as(Span, run.spans)


def test_a_folder_holds_what_its_document_lists(folder):
    tables = ["kernels", "layers", "links", "loads", "memory", "metrics", "operators", "own_plan", "plan", "spans"]
    names = {"run.json", "trace.json", *(f"{table}.parquet" for table in [*tables, "traffic", "what_if"])}
    assert {path.name for path in folder.iterdir()} == names
    assert os.listdir(folder.parent) == ["run"]


def test_written_runs_are_loaded_unchanged(folder):
    recording, run = by_hand(), store.load(folder)
    assert run.info == recording.info
    assert sorted(map(repr, as_spans(run))) == sorted(map(repr, recording.spans))
    direct = Run.of(recording)
    for name in ("metrics", "plan", "memory", "links"):
        pd.testing.assert_frame_equal(getattr(run, name), getattr(direct, name))


def test_every_table_is_loaded_as_it_was_recorded(tmp_path):
    recording = with_changes(with_layers(with_kernels(with_loads(of_script(by_hand())), 3)))
    recording.operators = [OperatorRow(operations='[{"is":"Scan"}]', calls=3), OperatorRow(operations="[]", calls=1)]
    recording.info = dataclasses.replace(recording.info, advice=(Advice(**ADVICE),))
    folder = store.write(recording, tmp_path / "run")
    run = store.load(folder)
    assert run.info == recording.info
    for name in TABLES.keys() - {"spans", "links"}:
        assert rows_as(TABLES[name], getattr(run, name)) == getattr(recording, name), name
    assert store.operators_in(folder) == recording.operators
    (folder / "operators.parquet").unlink()
    assert store.operators_in(folder) == []


def test_a_name_that_is_not_utf_8_is_a_sentence(folder, tmp_path):
    other = tmp_path / os.fsdecode(b"\xff")
    for refused in ((check_free, other), (store.load, other), (store.write, by_hand(), other)):
        assert refusal(*refused) == f"{str(other)!r}: expected a path in UTF-8"


def test_a_bit_that_flipped_inside_a_table_is_a_sentence(folder):
    path = folder / "spans.parquet"
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(file.schema_arrow.names.index("start_ns"))
        end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
    data = bytearray(path.read_bytes())
    data[end - 1] ^= 1
    path.write_bytes(data)
    assert refusal(store.load, folder).startswith(
        f"{path}: not a readable Parquet file: could not verify page integrity, CRC"
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("start_ns", -5, "expected -1 to 2,305,843,009,213,693,952"),
        ("end_ns", 2**63 - 1, "expected -1 to 2,305,843,009,213,693,952"),
        ("end_ns", 0, "expected at most end_ns = 0"),
    ],
)
def test_times_that_cannot_be_are_a_sentence(folder, name, value, expected):
    path = folder / "spans.parquet"
    table = pq.read_table(path)
    values = table[name].to_pylist()
    values[3] = value
    place = table.schema.get_field_index(name)
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(values, pa.int64())), path)
    said = refusal(store.load, folder)
    assert said.startswith(f"{path}: row 3: ")
    assert said.endswith(f"{expected}; the file is damaged")


def test_a_folder_of_a_release_without_them_has_empty_ones(folder):
    for name in LATER_TABLES:
        (folder / f"{name}.parquet").unlink()
    run, direct = store.load(folder), Run.of(by_hand())
    for name in LATER_TABLES:
        pd.testing.assert_frame_equal(getattr(run, name), getattr(direct, name))
        assert len(getattr(run, name)) == 0


@PATIENT
@given(recordings())
def test_any_spans_survive_a_round_trip(tmp_path_factory, recording):
    folder = store.write(recording, tmp_path_factory.mktemp("trip") / "run")
    assert sorted(map(repr, as_spans(store.load(folder)))) == sorted(map(repr, recording.spans))


def test_identical_spans_give_identical_bytes_however_they_were_gathered(tmp_path):
    recording = by_hand()
    shuffled = random.Random(5).sample(recording.spans, len(recording.spans))
    later = dataclasses.replace(by_hand(started="2027-01-01", hosts=("x", "y")), spans=shuffled)
    first, second = store.write(recording, tmp_path / "a"), store.write(later, tmp_path / "b")
    assert (first / "spans.parquet").read_bytes() == (second / "spans.parquet").read_bytes()
    changed = [*shuffled[:-1], dataclasses.replace(shuffled[-1], end_ns=shuffled[-1].end_ns + 1)]
    third = store.write(with_spans(recording, *changed), tmp_path / "c")
    assert (first / "spans.parquet").read_bytes() != (third / "spans.parquet").read_bytes()


def test_spans_lie_by_step_then_rank_then_issue_and_outside_of_steps_last(tmp_path):
    spans = [span(0, "barrier", 0, 1, step=-1), *by_hand().spans, span(1, "barrier", 300, 301, step=-1)]
    path = store.write(with_spans(by_hand(), *spans), tmp_path / "run") / "spans.parquet"
    rows = pq.read_table(path).to_pylist()
    assert [row["step"] for row in rows] == [0] * 8 + [1] * 8 + [2] * 8 + [-1] * 2
    in_steps = [(row["step"], row["rank"], row["issued_ns"]) for row in rows[:24]]
    assert in_steps == sorted(in_steps)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_however_a_run_is_cut_into_steps_its_spans_have_the_same_bytes(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "GROUP_ROWS", 5)
    whole = writer.write(by_hand(), tmp_path / "whole")
    with writer.writing(tmp_path / "parts") as written:
        for first in range(0, 3, parts):
            written.add([one for one in by_hand().spans if first <= one.step < first + parts])
        written.finish(by_hand())
    groups = pq.ParquetFile(whole / "spans.parquet").metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [5, 5, 5, 5, 4]
    for name in ("spans.parquet", "trace.json", "run.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (whole / name).read_bytes()


def test_a_trace_of_many_spans_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PART_ROWS", 0)
    monkeypatch.setattr(writer, "_SPANS", 8)
    said = []
    with writer.writing(tmp_path / "run", said.append) as written:
        written.add(by_hand().spans)
        written.finish(by_hand())
    assert said == [f"writing the run folder: trace.json, {done} of 24 spans" for done in (0, 8, 16)]


@pytest.mark.parametrize("changes", [{}, {"ranks": None}, {"steps": None}, {"phases": ()}, {"steady": (1, 2)}])
def test_thinning_is_stored(changes, tmp_path):
    recording = thin(**changes)
    assert store.load(store.write(recording, tmp_path / "run")).info == recording.info


@pytest.mark.parametrize(
    "changes", [{"ranks": "1"}, {"left_out": None}, {"phases": None}, {"steps": [1.5]}, {"steady": 1}, {"more": 1}]
)
def test_a_foreign_word_on_what_was_left_out_is_said(changes, tmp_path):
    folder = store.write(thin(), tmp_path / "run")
    found = {"ranks": [1], "steps": [1, 2], "left_out": 12, "phases": [1], **changes}
    path = edit(folder, thinned=found)
    expected = "expected numbers for ranks, steps, left_out, phases, steady"
    assert refusal(store.load, folder) == f"{path}: thinned = {found!r}: {expected}"


def test_of_what_is_thinned_only_what_is_there_is_said(tmp_path):
    whole, run = Run.of(by_hand()), store.load(store.write(thin(), tmp_path / "run"))
    pd.testing.assert_frame_equal(run.steps, whole.steps)
    own = whole.ranks_of([1, 2])
    pd.testing.assert_frame_equal(
        run.ranks.drop(columns="compute_over_mean"),
        own[own["rank"] == 1].drop(columns="compute_over_mean").reset_index(drop=True),
    )
    assert set(run.critical_path["step"]) == {1, 2}
    assert set(run.critical_path["rank"]) == {1}
    assert (run.operations["steps"].max(), run.operations["ranks"].max()) == (2, 1)


def test_nan_metrics_stay_nan(tmp_path):
    recording = by_hand()
    recording.metrics = [dataclasses.replace(recording.metrics[0], value=float("nan"))]
    assert np.isnan(store.load(store.write(recording, tmp_path / "run")).metrics["value"].iloc[0])


def test_an_existing_folder_is_never_touched(tmp_path):
    target = tmp_path / "run"
    target.mkdir()
    sentence = f"{target}: exists already; nothing is ever overwritten, give another folder"
    assert refusal(writer.write, by_hand(), target) == sentence
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "caught"),
    [(OSError(28, "No space left on device"), ReportError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_write_that_fails_or_is_interrupted_leaves_nothing_behind(tmp_path, monkeypatch, error, caught):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(perfetto, "write", fail)
    said = re.escape(f"{tmp_path / 'run'}: could not be written: {error.strerror}") if caught is ReportError else None
    with pytest.raises(caught, match=said):
        writer.write(by_hand(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_is_no_int_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(pa.ArrowInvalid):
        store.write(with_spans(by_hand(), span(0, "compute", 0, 10, bytes_in=0.5)), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_fresh_folder_is_free(tmp_path):
    now = datetime(2026, 1, 2, 3, 4, 5)
    first = store.fresh_folder(tmp_path / "runs", "a/b: c", now)
    assert first == tmp_path / "runs" / "a-b-c-20260102-030405"
    store.write(by_hand(), first)
    second = store.fresh_folder(tmp_path / "runs", "a/b: c", now)
    assert second.name == "a-b-c-20260102-030405-2"
    store.write(by_hand(), second)
    assert store.fresh_folder(tmp_path / "runs", "a/b: c", now).name == "a-b-c-20260102-030405-3"
    assert store.fresh_folder(tmp_path, "..", now).name == "run-20260102-030405"


def test_a_folder_that_is_no_run_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    assert refusal(store.load, tmp_path / "no") == f"{tmp_path / 'no'}: no such run folder"
    for path in (tmp_path, tmp_path / "file"):
        assert refusal(store.load, path) == f"{path}: not a run folder: it has no run.json"


def edit(folder: Path, **changes: object) -> Path:
    path = folder / "run.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return path


def test_fields_missing_in_earlier_releases_have_defaults(tmp_path):
    # as the first release wrote it
    first = {"name", "world", "digest", "scenario", "seed", "world_size", "started", "versions", "hosts", "complete"}
    first |= {"error", "clock_residual_ns", "elapsed_s", "schema_version"}
    folder = store.write(by_hand(), tmp_path / "run")
    edit(folder, **{field.name: None for field in dataclasses.fields(RunInfo) if field.name not in first})
    assert store.load(folder).info == by_hand().info
    before = {"ranks": [1], "steps": None, "left_out": 3, "phases": [1]}
    edit(folder, thinned=before)
    assert store.load(folder).info.thinned == Thinned(ranks=(1,), steps=None, left_out=3, phases=(1,), steady=None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": 2}, "schema_version = 2: this release reads up to 1"),
        ({"schema_version": None}, "not written by this project: it has no schema_version"),
        ({"digest": None, "seed": None}, "damaged: no digest, seed"),
        ({"world_size": "two"}, "world_size = 'two': expected int"),
        ({"plan_notes": [1]}, "plan_notes = [1]: expected sentences"),
        ({"hosts": ["host-a", 2]}, "hosts = ['host-a', 2]: expected names"),
        ({"scenario": {"library": ["gloo"]}}, "scenario.library = ['gloo']: expected a word"),
        ({"scenario": {"cluster": None}}, "scenario.cluster = None: expected a table"),
        ({"scenario": {"cluster": {"host": "x"}}}, "scenario.cluster.host = 'x': expected a table"),
        ({"scenario": {"cluster": {"host": {"gpu": [1]}}}}, "scenario.cluster.host.gpu = [1]: expected a table"),
        ({"scenario": {"cluster": {"network": "x"}}}, "scenario.cluster.network = 'x': expected a table"),
        ({"scenario": {"cluster": {"faults": "x"}}}, "scenario.cluster.faults = 'x': expected a list"),
        (
            {"scenario": {"cluster": {"faults": [{**FAULT, "begin_ns": "x"}]}}},
            f"scenario.cluster.faults: {FAULT | {'begin_ns': 'x'}!r}: expected part, speed, begin_ns and end_ns",
        ),
        (
            {"scenario": {"cluster": {"faults": [{**FAULT, "part": {"host": 1}}]}}},
            f"scenario.cluster.faults: {FAULT | {'part': {'host': 1}}!r}: expected part, speed, begin_ns and end_ns",
        ),
        ({"rank_classes": [[4, "4"]]}, "rank_classes: [4, '4']: expected a rank, how many are like it, and which"),
        ({"advice": [{**ADVICE, "share": "x"}]}, "advice: share = 'x': expected words or a number"),
        ({"advice": [{"change": "pad"}]}, "advice: {'change': 'pad'}: expected change, made_by, saved_ns, share"),
    ],
)
def test_what_is_wrong_in_run_json_is_said(folder, changes, said):
    path = edit(folder, **changes)
    assert refusal(store.load, folder) == f"{path}: {said}"


def test_run_json_that_is_cut_off_is_said(folder):
    path = folder / "run.json"
    path.write_text('{"name": ')
    assert refusal(store.load, folder) == f"{path}: not JSON: Expecting value: line 1 column 10 (char 9)"


def test_a_missing_table_is_said(folder):
    (folder / "plan.parquet").unlink()
    assert refusal(store.load, folder) == f"{folder}: damaged: it has no plan.parquet"


def test_a_table_that_is_cut_off_is_said(folder):
    path = folder / "spans.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert re.match(f"{re.escape(str(path))}: not a readable Parquet file: [^\n]+$", refusal(store.load, folder))


def test_a_table_of_other_columns_is_said(folder):
    path = folder / "metrics.parquet"
    pq.write_table(pa.table({"rank": [1], "step": ["x"]}), path)
    assert refusal(store.load, folder) == f"{path}: column name is missing or not string"


def test_an_incomplete_run_is_readable(tmp_path):
    recording = Recording(info=info(complete=False, error="rank 1 was killed by signal 9"))
    run = store.load(store.write(recording, tmp_path / "run"))
    assert (run.info.complete, run.info.error) == (False, "rank 1 was killed by signal 9")
    assert all(len(frame) == 0 for frame in run.derived().values())

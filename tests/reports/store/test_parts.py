"""What is read a part at a time says what the whole says, whatever the parts and the row groups."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.errors import ReportError
from reports.run import Run
from reports.store import run_folder as store
from reports.store.columns import TABLES
from reports.store.parts import SpansInFile, SpansInMemory
from reports.terminal import text
from scenarios.seam.trace import Recording
from tests.reports import shown as tables
from tests.reports.recordings import PATIENT, by_hand, on_nccl, recordings, span, with_spans


def both(recording: Recording, folder: Path, part_rows: int = 1, group_rows: int = 3) -> tuple[Run, Run]:
    """The run in memory, and the same from a file with small row groups in the order of an earlier release."""
    whole = store.load(store.write(recording, folder))
    path = folder / "spans.parquet"
    rows = pq.read_table(path).sort_by([("rank", "ascending"), ("sequence", "ascending")])
    pq.write_table(rows, path, row_group_size=group_rows)
    stored = {name: getattr(whole, name) for name in TABLES if name not in ("spans", "links")}
    return whole, Run(whole.info, {**stored, "links": whole._link_rows}, SpansInFile(path, part_rows))


@pytest.mark.slow
@PATIENT
@given(recordings(), st.integers(1, 20), st.integers(1, 20))
def test_parts_add_up_to_the_whole(tmp_path_factory, recording, part_rows, group_rows):
    """What overlaps in time may be in steps of other parts."""
    whole, parted = both(recording, tmp_path_factory.mktemp("parts") / "run", part_rows, group_rows)
    for name in ("steps", "ranks", "operations", "links"):
        pd.testing.assert_frame_equal(getattr(parted, name), getattr(whole, name))
    for steps in ([0], [0, 2], [7]):
        pd.testing.assert_frame_equal(parted.operations_of(steps), whole.operations_of(steps))
        pd.testing.assert_frame_equal(parted.ranks_of(steps), whole.ranks_of(steps))


def test_every_frame_and_the_summary_are_those_of_the_whole(tmp_path):
    outside = [span(rank, "barrier", 300, 310, step=-1, sequence=90, group="world", call=9) for rank in (0, 1)]
    recording = on_nccl(by_hand(), formula_ns=20)
    whole, parted = both(with_spans(recording, *recording.spans, *outside), tmp_path / "run")
    assert len(list(parted.parts(["step"], beside=False))) == 4
    for name, frame in whole.derived().items():
        if name != "spans":
            pd.testing.assert_frame_equal(getattr(parted, name), frame)
    assert text.as_text(tables.summarize(parted)) == text.as_text(tables.summarize(whole))
    assert text.as_text(tables.summarize(parted, 0)) == text.as_text(tables.summarize(whole, 0))
    assert tables.as_json(parted) == tables.as_json(whole)
    order = ["rank", "sequence", "start_ns"]
    frames = [run.spans.sort_values(order, ignore_index=True) for run in (whole, parted)]
    pd.testing.assert_frame_equal(frames[0], frames[1])


def test_spans_of_a_release_without_roles_have_those_that_labels_say(tmp_path):
    spans = [span(0, "step", 0, 100)]
    spans += [span(0, "compute", 0, 40, label="dense.update", kernel="module", sequence=1)]
    spans += [span(0, "all_to_all_single", 40, 95, label="table_wise.input_dist.splits", sequence=2)]
    spans += [span(0, "all_reduce", 95, 99, label="reduce", stream="m.gradients", sequence=3)]
    path = store.write(with_spans(by_hand(), *spans), tmp_path / "run") / "spans.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["role"]), path)
    said = {0: "", 1: "optimizer", 2: "sizes", 3: "reduction"}
    whole = store.load(path.parent).spans
    assert dict(zip(whole["sequence"], whole["role"], strict=True)) == said
    (part,) = SpansInFile(path).parts(["sequence", "role"], beside=False)
    assert dict(zip(part.spans["sequence"], part.spans["role"], strict=True)) == said
    assert "label" not in part.spans


def test_a_part_has_as_many_whole_steps_as_it_can_hold(tmp_path):
    _, parted = both(by_hand(), tmp_path / "run", part_rows=17)
    owned = [sorted(set(part.spans["step"][part.own])) for part in parted.parts(["rank"], beside=False)]
    assert owned == [[0, 1], [2]]


def test_only_what_is_asked_for_is_read(tmp_path, monkeypatch):
    _, parted = both(by_hand(), tmp_path / "run")
    columns = set()
    read = pq.ParquetFile.read_row_group

    def note(self, group, columns_=None, **given):
        columns.update(given["columns"])
        return read(self, group, **given)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", note)
    assert len(parted.operations)
    assert columns == {
        *("kind", "label", "stream", "step", "rank", "rank_count", "start_ns", "end_ns"),
        *("bytes_in", "bytes_out", "bytes_sent", "group", "call", "kernel", "host", "role", "launch_ns"),
    }


def test_summaries_and_traces_do_not_need_all_spans_at_once(tmp_path, monkeypatch):
    """Of a run that is too large to be read whole, nothing but `spans` is."""
    monkeypatch.setattr(store, "PART_ROWS", 10)
    folder = store.write(by_hand(), tmp_path / "run")
    run = store.load(folder)
    monkeypatch.setattr(SpansInFile, "whole", lambda _: pytest.fail("nobody asked for all"))
    assert text.as_text(tables.summarize(run)) == text.as_text(tables.summarize(Run.of(by_hand())))
    assert len(tables.as_json(run)["operations"]) == 5


def test_a_large_file_that_is_damaged_within_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PART_ROWS", 10)
    path = store.write(by_hand(), tmp_path / "run") / "spans.parquet"
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(ReportError, match=f"^{path}: not a readable Parquet file: [^\n]+$"):
        _ = store.load(path.parent).operations


def test_no_spans_are_one_empty_part(tmp_path):
    _, parted = both(Recording(info=by_hand().info), tmp_path / "run")
    (part,) = parted.parts(["rank"], beside=True)
    assert (len(part.spans), len(part.own)) == (0, 0)
    assert all(len(frame) == 0 for frame in parted.derived().values())


def test_in_memory_there_is_one_part():
    run = Run.of(by_hand())
    (part,) = SpansInMemory(run.spans).parts(["rank"], [1], beside=False)
    assert (len(part.spans), part.own.all()) == (8, True)
    (part,) = SpansInMemory(run.spans).parts(["rank"], [1], beside=True)
    assert (len(part.spans), part.own.sum()) == (24, 8)

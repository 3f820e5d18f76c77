from __future__ import annotations

import pandas as pd
import pytest

from reports import report
from reports.compare.comparison import compare
from reports.errors import ReportError
from reports.run import FRAMES, Run
from reports.side_by_side.frames import side_by_side
from reports.store import run_folder as store
from tests.reports.recordings import by_hand


@pytest.fixture
def folder(tmp_path):
    return store.write(by_hand(), tmp_path / "run")


def test_tables_are_the_frames(folder):
    run = store.load(folder)
    assert report.write(run, report.folder_of(folder)) == folder / "reports" / "report.html"
    tables = folder / "reports" / "tables"
    for name in FRAMES:
        if name != "spans":
            frame = getattr(run, name)
            pd.testing.assert_frame_equal(pd.read_parquet(tables / f"{name}.parquet"), frame, check_dtype=False)
            read = pd.read_csv(tables / f"{name}.csv", keep_default_na=False, na_values=["nan", ""])
            assert list(read) == list(frame)
            for column in frame.select_dtypes("number"):
                assert read[column].tolist() == pytest.approx(frame[column].tolist(), nan_ok=True)
    assert not (tables / "spans.csv").exists()


def test_other_files_of_the_folder_stay(folder):
    run, place = store.load(folder), report.folder_of(folder)
    report.write(run, place)
    (place / "mine.txt").write_text("kept")
    (place / "report.html").write_text("old")
    report.write(run, place)
    assert (place / "mine.txt").read_text() == "kept"
    assert (place / "report.html").read_text() != "old"
    assert not [path for path in place.rglob("*") if path.name.endswith(".partial")]


def test_a_run_with_a_report_is_the_same_run(folder):
    before = store.load(folder).operations
    report.write(store.load(folder), report.folder_of(folder))
    pd.testing.assert_frame_equal(store.load(folder).operations, before)


def test_where_nothing_can_be_written_is_one_sentence(folder):
    (folder / "reports").write_text("in the way")
    with pytest.raises(ReportError, match=r"reports/report\.html: could not be written: "):
        report.write(store.load(folder), report.folder_of(folder))


def test_a_page_that_cannot_be_written_leaves_no_folder(folder, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "out").mkdir()
    monkeypatch.setattr("reports.store.replace.os.replace", fail)
    with pytest.raises(ReportError, match=r"report\.html: could not be written: No space left on device"):
        report.write(store.load(folder), tmp_path / "out" / "deep" / "report")
    assert list((tmp_path / "out").iterdir()) == []


def test_pieces_of_work_are_reported_to_the_progress_line(folder):
    told = []
    report.write(store.load(folder), report.folder_of(folder), tell=lambda *words: told.append(words))
    assert [number for _, number, _ in told] == list(range(1, len(told) + 1))
    assert {of for *_, of in told} == {len(told)}


def test_a_comparison_lies_in_the_measured_run_and_leads_to_both(tmp_path):
    folders = [store.write(by_hand(world=world), tmp_path / world) for world in ("sim", "real")]
    path = report.write_comparison(compare(*map(store.load, folders)), folders, None)
    assert path == folders[1] / "reports" / "compared_with_sim.html"
    words = path.read_text(encoding="utf-8")
    assert '"../../sim/reports/report.html#timeline' in words
    assert '"report.html#timeline' in words
    assert (path.parent / "compared_with_sim" / "operations.csv").is_file()


def test_runs_side_by_side_go_where_they_are_told(tmp_path):
    folders = [store.write(by_hand(seed=seed), tmp_path / f"run{seed}") for seed in (1, 2)]
    runs = [(folder.name, store.load(folder)) for folder in folders]
    path = report.write_side_by_side(side_by_side(runs), folders, tmp_path / "out")
    assert path == tmp_path / "out" / "side_by_side.html"
    assert 'href="run2/report.html' in path.read_text(encoding="utf-8")
    assert (tmp_path / "out" / "run2" / "report.html").is_file()
    assert not (folders[0] / "reports").exists()


def test_a_run_that_is_still_in_memory_can_be_reported(tmp_path):
    assert report.write(Run.of(by_hand()), tmp_path).is_file()


def test_runs_whose_folders_have_one_name_keep_their_own_pages(tmp_path):
    folders = [store.write(by_hand(world=world), tmp_path / world / "run") for world in ("sim", "real")]
    path = report.write_comparison(compare(*map(store.load, folders)), folders, tmp_path / "out")
    words = path.read_text(encoding="utf-8")
    assert ('"run/report.html#timeline' in words, '"run_2/report.html#timeline' in words) == (True, True)
    pages = [(tmp_path / "out" / name / "report.html").read_text(encoding="utf-8") for name in ("run", "run_2")]
    assert ["predicted, " in pages[0], "measured, " in pages[1]] == [True, True]

"""What a Python session and a notebook show of a run: always something, never an error, never markup of a label."""

from __future__ import annotations

import dataclasses
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given

from reports.run import Run
from reports.sections.run.headline import headline
from reports.store import run_folder as store
from scenarios.seam.trace import Recording
from tests.reports.recordings import PATIENT, by_hand, info, recordings, thinned, with_spans


class Balanced(HTMLParser):
    """Fails where tags are not closed as they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(run: Run) -> list[str]:
    parser = Balanced()
    parser.feed(run._repr_html_())
    parser.close()
    assert parser.open == []
    return repr(run).splitlines()


def test_a_run_says_step_time_ranks_and_what_dominates() -> None:
    run = Run.of(by_hand())
    *head, parts, path = shown(run)
    assert [line.strip().removeprefix("<Run ") for line in head] == headline(run)
    assert "2 ranks on 2 hosts" in head[0]
    assert "step time 100 ns, the median of steps 1-2" in head[1]
    mean = "  mean over ranks in step 1: compute 67.5 %, exposed transfer 30.0 %"
    assert re.fullmatch(rf"{mean}, [a-z ]+ 2\.5 %", parts)
    assert path == "  critical path of step 1: forward 60.0 %, compressed gradients 35.0 %, update 5.0 %>"


def test_a_real_run_that_ended_early_says_so() -> None:
    lines = shown(Run.of(by_hand(world="real", complete=False, error="rank 1 was lost")))
    assert lines[0].startswith("<Run by_hand: measured, 2 ranks on 2 hosts")
    assert "rank 1 was lost" in lines[1]


def test_a_thinned_run_says_what_it_kept() -> None:
    run = Run.of(thinned())
    lines = shown(run)
    assert lines[1].strip() == headline(run)[1]
    assert lines[-2].startswith("  mean over ranks in step 1: compute 65.0 %")


def test_an_empty_run_is_shown() -> None:
    lines = shown(Run.of(Recording(info=info(scenario={}))))
    assert lines == ["<Run by_hand: predicted, 2 ranks on 0 hosts", "  no rank completed a step>"]


def test_labels_are_text_not_markup() -> None:
    spans = [dataclasses.replace(one, label="<b>\n&" if one.label else "", kernel="") for one in by_hand().spans]
    run = Run.of(with_spans(by_hand(name="<script>"), *spans))
    assert "<script>" not in run._repr_html_()
    assert "&lt;script&gt;" in run._repr_html_()
    assert "<b>" not in run._repr_html_()
    assert shown(run)[-1] == "  critical path of step 1: '<b>\\n&' 65.0 %, '<b>\\n&' 35.0 %>"


@PATIENT
@given(recordings())
def test_any_run_is_shown(recording: Recording) -> None:
    lines = shown(Run.of(recording))
    assert lines[0].startswith("<Run ")
    assert lines[-1].endswith(">")


def test_a_run_whose_folder_is_gone_is_still_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PART_ROWS", 1)  # spans are read when asked for
    folder = store.write(by_hand(), tmp_path / "run")
    whole, gone = store.load(folder).in_memory(), store.load(folder)
    shutil.rmtree(folder)
    assert shown(whole) == shown(Run.of(by_hand()))
    (line,) = shown(gone)
    assert line.startswith(f"<Run by_hand: {folder}/spans.parquet: ")

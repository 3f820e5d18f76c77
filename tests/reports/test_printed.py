"""What a Python session and a notebook show of a run and its drawings: always something, never markup of a label."""

from __future__ import annotations

import dataclasses
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bokeh.models import Plot as BokehPlot
from hypothesis import given

from reports.errors import ReportError
from reports.run import Run
from reports.sections.run.subject import RunView
from reports.sections.run.summary import SUMMARY
from reports.store import run_folder as store
from reports.terminal import text
from reports.terminal.render import render_report
from scenarios.seam.trace import Recording
from tests.lanes import examples
from tests.reports.recordings import by_hand, info, recordings, thin, with_spans

PLOTS = "verdict, tables, links, steps, timeline, parts, hidden, critical-path, ranks, memory, numbers"


class Balanced(HTMLParser):
    """Fails where tags are not closed as they were opened; `said` is the text outside of styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag != "script"
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said.append(data)


def shown(run: Run) -> tuple[list[str], str]:
    """The lines of a session, and the words of a notebook."""
    return repr(run).splitlines(), " ".join(" ".join(Balanced(run._repr_html_()).said).split())


@pytest.mark.parametrize("recording", [by_hand(), thin(), by_hand(complete=False, error="rank 1 was lost")])
def test_a_run_is_shown_as_its_first_screen(recording: Recording) -> None:
    run = Run.of(recording)
    lines, words = shown(run)
    assert lines == text.as_text(render_report(SUMMARY, RunView.of(run))).rstrip().splitlines()
    assert words.startswith(lines[0])
    assert "step time 100 ns" in words
    assert "Critical path of step 1" in words
    assert ("rank 1 was lost" in words) == (not recording.info.complete)


def test_an_empty_run_is_shown() -> None:
    lines, words = shown(Run.of(Recording(info=info(scenario={}))))
    assert lines[0] == "by_hand: predicted, 2 ranks on 0 hosts"
    assert "unknown: no rank completed a step" in lines[2]
    assert words == "by_hand: predicted, 2 ranks on 0 hosts No rank completed a step."


def test_labels_are_text_not_markup() -> None:
    spans = [dataclasses.replace(one, label="<b>\n&" if one.label else "", kernel="") for one in by_hand().spans]
    html = Run.of(with_spans(by_hand(name="<script>"), *spans))._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<b>" not in html


@examples(10)
@given(recordings())
def test_any_run_is_shown(recording: Recording) -> None:
    lines, words = shown(Run.of(recording))
    assert lines[0]
    assert words


def test_a_run_whose_folder_is_gone_is_still_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PART_ROWS", 1)  # spans are read when asked for
    folder = store.write(by_hand(), tmp_path / "run")
    whole, gone = store.load(folder).in_memory(), store.load(folder)
    shutil.rmtree(folder)
    assert shown(whole) == shown(Run.of(by_hand()))
    (line,), words = shown(gone)
    assert line.startswith(f"{folder}/spans.parquet: ")
    assert words == line


def test_a_plot_of_charts_is_a_page_in_a_frame_and_one_of_pictures_needs_no_script() -> None:
    run = Run.of(by_hand())
    charts, pictures = run.plot(), run.plot("verdict")
    assert (repr(charts), len(charts.figures), pictures.figures) == (
        "<Plot 'Timeline' of by_hand, which a notebook shows>",
        1,
        [],
    )
    assert isinstance(charts.figures[0], BokehPlot)
    frame = re.fullmatch(r'<iframe title="Timeline" style="[^"]+" srcdoc="([^"]+)"></iframe>', charts._repr_html_())
    assert frame is not None
    page = unescape(frame[1])
    assert 'data-item="timeline"' in page
    assert "<h1>" not in page
    Balanced(pictures._repr_html_())


def test_a_plot_that_there_is_not_is_refused_in_a_sentence() -> None:
    run = Run.of(by_hand())
    for name in ("lines", "scenario"):
        with pytest.raises(ReportError, match=re.escape(f"plot '{name}': expected one of {PLOTS}") + "$"):
            run.plot(name)
    with pytest.raises(ReportError, match=r"plot 'parts': by_hand has none: no rank completed a step$"):
        Run.of(Recording(info=info(scenario={}))).plot("parts")

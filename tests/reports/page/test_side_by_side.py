"""The page of several runs says what their frames say, and is drawn in Chromium without an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from reports.page import render
from reports.page import side_by_side as pages
from reports.page.blocks import Chart
from reports.page.sections import draw_sections
from reports.page.side_by_side import colors, dots
from reports.sections.model import Facts, Grid, PageLink, ReportTable, Shown, Words
from reports.sections.side_by_side import BESIDE, BesideView
from reports.side_by_side.frames import SideBySide
from reports.side_by_side.words import sentences
from reports.terminal import text
from scenarios.seam.trace import Recording
from tests.reports.page.browser import Browser
from tests.reports.page.test_in_browser import CHARTS, READY
from tests.reports.recordings import by_hand, info, thin
from tests.reports.side_by_side.test_frames import of, slower
from tests.reports.side_by_side.test_tables import placed_elsewhere

HREFS = ("report.html", "../other run/report.html")


@pytest.fixture
def both() -> SideBySide:
    return of(by_hand(), placed_elsewhere())


def sections_of(runs: SideBySide, hrefs: Sequence[str]) -> list[Shown]:
    return draw_sections(BESIDE, BesideView(runs, hrefs))


def find(sections: list[Shown], name: str) -> Shown:
    return next(one for one in sections if one.name == name)


def block(sections: list[Shown], name: str) -> ReportTable:
    return next(block for block in find(sections, name).blocks if isinstance(block, ReportTable))


def table(sections: list[Shown], name: str) -> Grid:
    return block(sections, name).grid("page")


def test_sections_show_something_and_charts_have_tables(both: SideBySide):
    kinds = {one.name: [type(block) for block in one.blocks] for one in sections_of(both, HREFS)}
    assert kinds == {
        "glance": [Words, Facts, ReportTable],
        "settings": [ReportTable],
        "parts": [Chart, ReportTable],
        "steps": [Chart, ReportTable],
        "operations": [Chart, ReportTable],
        "memory": [Chart, ReportTable],
        "links": [Chart, ReportTable],
        "balance": [Chart, ReportTable],
        "plan": [ReportTable],
    }


def test_the_page_begins_with_what_differs_and_leads_to_each_run(both: SideBySide):
    page = pages.page(both, HREFS, "side_by_side/")
    words, facts, runs = find(list(page.sections), "glance").blocks
    assert isinstance(words, Words)
    assert isinstance(facts, Facts)
    assert isinstance(runs, ReportTable)
    assert words.text.splitlines()[0] == sentences(both)[0]
    rate, step = facts.items[:2]
    assert (rate.name, rate.note) == ("samples/s", "+0.0 % against 1,280,000,000"), "batches differ"
    assert (step.name, step.value, step.note, step.raw) == ("step time", "200 ns", "of 256 samples", 200.0)
    assert [row[0] for row in runs.grid("page").rows] == [PageLink("run0", HREFS[0]), PageLink("run1", HREFS[1])]
    assert runs.raw == {"step_ns-0": 100.0, "step_ns-1": 200.0}
    assert page.foot[0].startswith("All numbers are those of the tables in side_by_side/")


def test_tables_have_the_numbers_of_the_frames(both: SideBySide):
    sections = sections_of(both, HREFS)
    assert table(sections, "settings").rows == [["run.batch_size", "64", "128"]]
    numbers = table(sections, "parts")
    assert [row[0] for row in numbers.rows[:2]] == ["samples/s", "samples per step"], "batches differ"
    assert numbers.rows[2] == ["step time", "100 ns", "200 ns", "+100.0 %"]
    assert block(sections, "parts").raw == {"compute_ns-0": 67.5, "compute_ns-1": 135.0}
    assert table(sections, "steps").rows == [
        ["run0", "3", "100 ns", "100 ns", "100 ns"],
        ["run1", "3", "200 ns", "200 ns", "200 ns"],
    ]
    operations = table(sections, "operations")
    assert operations.rows[0] == ["forward", "compute", "50 ns", "100 ns", "+50 ns", "", ""]
    assert operations.rows[-1] == ["update", "compute", "5 ns", "-", "-5 ns", "", ""]
    assert operations.rows[1][-4:] == ["90 ns", "+45 ns", "+30 ns", "0 ns"]
    assert table(sections, "memory").rows == [
        ["embedding weights", "8.00 KiB", "8.00 KiB"],
        ["activations", "4.00 KiB", "4.00 KiB"],
        ["total", "12.0 KiB", "12.0 KiB"],
    ]
    assert table(sections, "links").rows[2] == ["nic", "run0", "nic1", "2", "225 B", "37.5 %", "50.0 %", "100.0 %"]
    assert table(sections, "balance").rows[:3] == [
        ["compute of a step", "run0", "70 ns", "0", "68 ns", "1.04"],
        ["compute of a step", "run1", "140 ns", "0", "135 ns", "1.04"],
        ["planner's ids per step", "run0", "300", "1", "200", "1.50"],
    ]
    assert table(sections, "plan").rows == [["t0", "table_wise 0, 4.00 KiB", "table_wise 1, 4.00 KiB"]]


def test_empty_sections_have_a_reason():
    bare = Recording(info=info(world="real"))
    assert {one.name: one.absent for one in sections_of(of(bare, bare), HREFS) if one.absent} == {
        "settings": "No differences; 13 identical.",
        "parts": "No rank of any run completed a step.",
        "steps": "No rank of any run completed a step.",
        "operations": "No rank of any run completed a step.",
        "memory": "No run has recorded its memory.",
        "links": "Not available: no run has links, as real runs record none.",
        "balance": "No run has a plan, or spans of its steady steps.",
        "plan": "Fewer than two runs have one.",
    }
    left_out = find(sections_of(of(thin(ranks=(), steps=())), HREFS[:1]), "operations")
    assert left_out.absent == "No run has kept spans of its steady steps."
    half = sections_of(of(by_hand(), bare), HREFS)
    assert {one.name for one in half if one.absent} == {"plan"}
    assert block(half, "links").note == "Not available: run1."


def test_pages_say_what_was_left_out_or_ended_early():
    runs = of(by_hand(complete=False, error="interrupted"), thin(), slower())
    assert pages.page(runs, [""] * 3).about == [
        "3 runs side by side, relative to the first:",
        "run0: by_hand, predicted, 2 ranks; ENDED EARLY: interrupted",
        "run1: by_hand, predicted, 2 ranks; spans kept of 1 of 2 ranks in 2 steps; 12 others left out",
        "run2: slower, predicted, 2 ranks",
    ]
    sections = sections_of(runs, [""] * 3)
    assert table(sections, "glance").rows[0][0] == "run0", "there is no page to lead to"


def test_a_run_has_the_same_colour_in_every_chart():
    runs = of(by_hand(), slower(), by_hand())
    colored = colors(runs)
    assert len(set(colored.values())) == 3
    drawn = dots(["a", "b"], {"run2": [1.0, float("nan")]}, text.number, colored, x="x")
    dot = next(one for one in drawn.renderers if one.glyph.__class__.__name__ == "Scatter")
    assert (dot.glyph.line_color, dot.glyph.size) == (colored["run2"], 8)
    assert drawn.hover.renderers == [dot], "readers ask for dots, not for what ties them"


@pytest.mark.parametrize("count", [1, 2, pytest.param(12, marks=pytest.mark.slow)])
def test_chromium_draws_all_of_it(browser: Browser, tmp_path: Path, count: int):
    runs = of(*([by_hand(name="<b>&</b>"), placed_elsewhere(), Recording(info=info())] * 4)[:count])
    path = tmp_path / "side_by_side.html"
    render.write(pages.page(runs, ["report.html"] * count), path)
    for dark, phone in ((False, False), (True, True)):
        browser.open(path, dark=dark, phone=phone)
        browser.wait_until(READY)
        assert (browser.console_errors(), browser.requests()) == ([], [])
        charts = browser.evaluate(CHARTS)
        assert {name for name, _, _ in charts} == {"parts", "steps", "operations", "memory", "links", "balance"}
        assert all(height >= 100 and is_drawn for _, height, is_drawn in charts)
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the page"
        browser.keep(f"beside-{count}-{'phone' if phone else 'desktop'}")
    raw = browser.evaluate("document.querySelector('[data-table=\"Runs\"]').dataset['step_ns-0']")
    assert float(raw) == runs.results["step_ns"].iloc[0]

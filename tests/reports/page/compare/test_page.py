"""The page of a comparison says what its frames say, and leads to the places that it speaks of."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from urllib.parse import parse_qs, unquote

import numpy as np
import pytest

from reports.compare.comparison import compare
from reports.page import render
from reports.page.blocks import Chart
from reports.page.compare import error_charts
from reports.page.compare import page as pages
from reports.page.sections import draw_sections
from reports.run import Run
from reports.sections.comparison import COMPARISON, CompareView, Comparison, typical_and_worst
from reports.sections.model import Facts, PageLink, ReportTable, Shown, Words
from reports.terminal import text
from scenarios.seam.trace import Recording
from tests.reports.page.browser import Browser
from tests.reports.recordings import by_hand, with_spans

PAGES = ("../sim run/report.html", "../real/report.html")


def measure() -> Recording:
    """As `by_hand`, with all_reduces that take a fifth longer and an update that takes thrice as long."""
    longer = {"all_reduce": 1.2, "compute": 1.0}
    spans = []
    for one in by_hand().spans:
        factor = 3.0 if one.label == "update" else longer.get(one.kind, 1.1)
        end_ns = one.start_ns + round((one.end_ns - one.start_ns) * factor)
        spans.append(dataclasses.replace(one, end_ns=end_ns))
    return with_spans(by_hand(world="real"), *spans)


@pytest.fixture
def comparison() -> Comparison:
    return compare(Run.of(by_hand()), Run.of(measure()))


def blocks(sections: list[Shown], name: str) -> list:
    return list(next(one for one in sections if one.name == name).blocks)


def test_sections_are_not_empty_and_charts_have_tables(comparison: Comparison):
    sections = draw_sections(COMPARISON, CompareView(comparison, PAGES))
    assert [one.absent for one in sections] == [""] * 7
    kinds = {one.name: [type(block) for block in one.blocks] for one in sections}
    assert kinds == {
        "summary": [Facts, Words],
        "scatter": [Chart],
        "steps": [Chart, ReportTable],
        "operations": [Chart, ReportTable],
        "sizes": [Chart, ReportTable, ReportTable],
        "worst": [ReportTable],
        "checks": [Words, Words, Words],
    }


def test_steps_that_one_run_alone_has_do_not_count():
    """Else the medians would be of other steps on either side: the last two, quick ones are predicted alone."""
    quick = [dataclasses.replace(one, start_ns=300, end_ns=310) if one.step > 0 else one for one in by_hand().spans]
    recordings = with_spans(by_hand(), *quick), with_spans(measure(), *(one for one in quick if one.step < 1))
    found = compare(*map(Run.of, recordings))
    facts, _ = blocks(draw_sections(COMPARISON, CompareView(found, PAGES)), "summary")
    both = found.steps[found.steps["step"] < 1]
    assert [(fact.raw, fact.note) for fact in facts.items[:2]] == [
        (both[f"{side}_ns"].median(), "median of step 0") for side in ("predicted", "measured")
    ]
    assert both["predicted_ns"].median() != found.steps["predicted_ns"].median()


def test_facts_are_those_of_the_frames(comparison: Comparison):
    facts, _ = blocks(draw_sections(COMPARISON, CompareView(comparison, PAGES)), "summary")
    raw = {fact.name: fact.raw for fact in facts.items if fact.raw is not None}
    assert raw == {
        "predicted step": comparison.steps["predicted_ns"].median(),
        "measured step": comparison.steps["measured_ns"].median(),
        "error of steps": typical_and_worst(comparison.steps)[0],
        "error of operations": typical_and_worst(comparison.operations)[0],
        "error of single calls": typical_and_worst(comparison.calls)[0],
    }
    assert [fact.note for fact in facts.items[:2]] == ["median of steps 0-2"] * 2
    verdicts = {fact.name: (fact.value, fact.note) for fact in facts.items if fact.raw is None}
    assert verdicts == {
        "bytes": ("same", "18 compared"),
        "order": ("same", "2 compared"),
        "recorded metrics": ("same", "6 compared"),
    }


def test_every_worst_case_leads_into_both_timelines(comparison: Comparison):
    (table,) = blocks(draw_sections(COMPARISON, CompareView(comparison, PAGES)), "worst")
    assert len(table.rows) == len(comparison.worst) > 0
    for cells, row in zip(table.rows, comparison.worst.to_dict("records"), strict=True):
        assert all(isinstance(cell, PageLink) for cell in cells[1:3])
        for side, path, link in zip(("predicted", "measured"), PAGES, cells[1:3], strict=True):
            assert link.words == side
            page, _, parameters = link.href.partition("#timeline?")
            place = {key: values[0] for key, values in parse_qs(parameters).items()}
            assert (unquote(page), place["operation"]) == (path, row["label"])
            assert float(place["from"]) <= row[f"{side}_start_ns"] / 1e6
            assert float(place["until"]) >= row[f"{side}_end_ns"] / 1e6


def test_runs_without_pages_of_their_own_are_not_led_to(comparison: Comparison):
    (table,) = blocks(draw_sections(COMPARISON, CompareView(comparison, ("", ""))), "worst")
    assert list(table.columns)[:3] == ["operation", "rank", "step"]
    assert all(isinstance(cell, str) for row in table.rows for cell in row)


def test_the_runs_own_pages_are_told_what_they_must_show(comparison: Comparison):
    wanted = {(row.step, row.rank) for row in comparison.worst.itertuples()}
    assert set(pages.places(comparison)) == wanted


def test_with_nothing_in_common_each_section_says_so():
    nothing = compare(Run.of(with_spans(by_hand())), Run.of(with_spans(by_hand(world="real"))))
    absent = {one.name: one.absent for one in draw_sections(COMPARISON, CompareView(nothing, PAGES)) if one.absent}
    assert absent == {
        "scatter": "No operation took time in both runs.",
        "steps": "No step was completed in both runs.",
        "operations": "No operation is in both runs.",
        "sizes": "No operation of one size is in both runs.",
        "worst": "The runs have no operation of a rank and step in common.",
    }


def test_differences_are_named_with_their_places():
    spans = [dataclasses.replace(one, bytes_sent=999) if one.kind == "all_reduce" else one for one in by_hand().spans]
    found = compare(Run.of(by_hand()), Run.of(with_spans(by_hand(world="real"), *spans)))
    first, table, *_ = blocks(draw_sections(COMPARISON, CompareView(found, PAGES)), "checks")
    assert first.text == "DIFFERENT bytes per operation and rank: 6 of 18 compared."
    assert table.rows[0] == ["rank 0, step 0, gradients: bytes_sent 1,000 and 999"]


def test_half_and_twice_are_equally_far_from_zero():
    assert error_charts.log_ratio([-0.5, 0.0, 1.0]).tolist() == [-1.0, 0.0, 1.0]
    assert np.isfinite(error_charts.log_ratio([-1.0, 1e9])).all()


def test_a_page_opens_without_errors_and_its_numbers_are_those_of_the_frames(
    comparison: Comparison, browser: Browser, tmp_path: Path
):
    path = tmp_path / "compared.html"
    render.write(pages.page(comparison, *PAGES), path)
    for phone in (False, True):
        browser.open(path, dark=phone, phone=phone)
        browser.wait_until("document.documentElement.dataset.ready == 'yes'")
        assert (browser.console_errors(), browser.requests()) == ([], [])
        width = browser.evaluate("document.documentElement.scrollWidth")
        assert width == browser.evaluate("innerWidth")
        for name in ("scatter", "operations", "sizes", "worst"):
            browser.keep(f"comparison-{name}{'-phone' if phone else ''}", f"#{name}")
    charts = "[...document.querySelectorAll('[data-chart]')].map(one => [one.dataset.chart, one.offsetHeight > 100])"
    assert dict(browser.evaluate(charts)) == dict.fromkeys(["scatter", "steps", "operations", "sizes"], True)
    raw = "Number(document.querySelector('[data-fact=\"error of operations\"]').dataset.raw)"
    assert browser.evaluate(raw) == typical_and_worst(comparison.operations)[0]
    shown = "[...document.querySelectorAll('#worst tbody tr')].map(row => row.lastElementChild.textContent)"
    assert browser.evaluate(shown) == [text.signed_percent(one) for one in comparison.worst["error_of_step"]]

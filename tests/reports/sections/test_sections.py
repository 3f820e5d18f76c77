"""The law of sections: each is rendered by every renderer that it names, and a new one needs no renderer changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from rich.console import Group

from reports.json_document import document
from reports.page import render
from reports.page.blocks import Page
from reports.page.sections import draw_sections
from reports.run import Run
from reports.sections.model import BOTH, Block, Most, Report, ReportSection, ReportTable, Words, on_page, table_of
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.render import render_report
from scenarios.seam.trace import Recording
from tests.reports.recordings import (
    by_hand,
    info,
    of_script,
    on_nccl,
    thin,
    with_changes,
    with_kernels,
    with_layers,
    with_loads,
    with_spans,
)

WHOLE = with_layers(with_kernels(with_changes(with_loads(on_nccl(by_hand(), formula_ns=28))), 25))
RECORDINGS = {
    "whole": WHOLE,
    "real": by_hand(world="real"),
    "script": of_script(by_hand()),
    "thinned": thin(),
    "no spans": thin(ranks=(), steps=None),
    "no steps": with_spans(by_hand()),
    "empty": Recording(info=info(complete=False, error="killed")),
}


@pytest.fixture(params=RECORDINGS, scope="module")
def view(request: pytest.FixtureRequest) -> RunView:
    return RunView.of(Run.of(RECORDINGS[request.param]))


def only(section: ReportSection) -> Report:
    """Return the report that has this section alone."""
    return dataclasses.replace(RUN, sections=[section], lines=lambda view: [], data=lambda view: {})


def page_of(section: ReportSection, view: RunView) -> str:
    return render.html(Page(title="", about=[], sections=draw_sections(only(section), view))).split("<main>")[1]


@pytest.mark.parametrize("section", RUN.sections, ids=lambda section: section.name)
def test_a_section_is_rendered_by_each_renderer_that_it_names(section: ReportSection, view: RunView) -> None:
    outputs = {output for output in BOTH if section.parts_for(output)}
    absent = section.absent(view)
    assert not absent or absent.endswith(".")
    if "page" in outputs:
        assert f'<section id="{section.name}"' in page_of(section, view)
    shown, printed = section.show(view, "terminal"), text.as_text(render_report(only(section), view)).strip()
    assert bool(printed) == (shown is not None)
    assert shown is None or "terminal" in outputs
    assert document(only(section), view).keys() == section.data(view).keys()


def test_a_new_section_shows_up_in_the_terminal_on_the_page_and_in_json() -> None:
    def slowest(view: RunView) -> Iterator[Block]:
        yield Words("the slowest step stands first")
        steps = view.run.steps.sort_values("step_ns", ascending=False)
        columns = {"step": "step", "step_ns": "took"}
        yield table_of("Slowest steps", steps, columns, most=Most(1, 2), others="quicker ones", file="steps.csv")

    new: ReportSection = ReportSection(
        name="slowest",
        title="Slowest",
        parts=[slowest],
        data=lambda view: {"slowest": view.run.steps},
    )
    report, view = dataclasses.replace(RUN, sections=[*RUN.sections, new]), RunView.of(Run.of(by_hand()))
    printed = text.as_text(render_report(report, view))
    assert printed.endswith("Slowest steps; 2 quicker ones not shown\nstep    took\n────────────\n0     100 ns\n\n")
    assert "\nthe slowest step stands first\n" in printed
    words = render.html(Page(title="", about=[], sections=draw_sections(report, view)))
    assert '<a href="#slowest">Slowest</a>' in words
    assert "<p>The slowest step stands first.</p>" in words
    assert '<tr><td>1</td><td class="number">100 ns</td></tr>' in words
    assert '<p class="note">1 more are in steps.csv.</p>' in words
    assert [row["step"] for row in document(report, view)["slowest"]] == [0, 1, 2]


def test_an_output_has_only_the_columns_and_rows_that_are_for_it() -> None:
    table = ReportTable("t", ["a", "b"], [["1", "2"], ["3", "4"]], most=Most(1, 2))
    assert (table.grid("terminal").rows, table.grid("terminal").left_out) == ([["1", "2"]], 1)
    assert table.grid("page").left_out == 0
    section = ReportSection("s", "S", [on_page(lambda of: [table])])
    assert section.show(None, "terminal") is None
    assert isinstance(render_report(Report(lines=lambda of: [], sections=[section]), None), Group)

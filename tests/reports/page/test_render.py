from __future__ import annotations

import dataclasses
import json
import re

import pytest

from reports.errors import ReportError
from reports.page import charts, render
from reports.page.blocks import Chart, Page
from reports.page.run import page as run_page
from reports.run import Run
from reports.sections.model import Fact, Facts, Listing, PageLink, ReportTable, Shown, Words
from tests.reports.recordings import by_hand, with_changes, with_kernels, with_loads, with_spans

WICKED = "</script><script>alert(1)</script>&amp;<b>"


def page(*blocks) -> Page:
    return Page(title="a page", about=["of nothing"], sections=[Shown("one", "One", blocks)])


def test_whatever_labels_say_is_text():
    chart = Chart("c", WICKED, charts.stacked_bars([WICKED], {WICKED: ([1.0], "#000000")}, x=WICKED), WICKED)
    table = ReportTable(WICKED, [WICKED], [[WICKED], [PageLink(WICKED, "#x")]], note=WICKED)
    words = render.html(
        page(Facts([Fact(WICKED, WICKED, WICKED, 1.0)]), table, chart, Words(WICKED, [WICKED]), Listing(WICKED, WICKED))
    )
    assert "alert(1)</script>" not in words
    item = re.search(r'<script type="application/json" data-item="c">(.*?)</script>', words, re.S)
    assert item is not None
    assert WICKED in json.dumps(json.loads(item[1]), ensure_ascii=False)


def test_a_page_says_at_a_glance_what_dominates_and_how_hot_the_hottest_link_is():
    words = re.sub(r"<[^>]+>|\s+", " ", render.html(run_page.page(Run.of(by_hand()))).split("</style>")[-1])
    words = " ".join(words.split())
    assert "What dominates the critical path of step 1: gemm (matrix products): 60 ns of the 100 ns step" in words
    assert "nic1, mean over the run; 100.0 % while busy" in words
    assert words.index("What dominates") < words.index("Stragglers and hot spots")


def test_a_page_loads_nothing():
    words = render.html(run_page.page(Run.of(by_hand())))
    assert not re.findall(r"<(?:script|img|iframe)[^>]+src=|<link[^>]+href=\"(?!data:)|@import|url\(http", words)


def test_numbers_that_are_asked_for_by_name_are_there():
    words = render.html(
        page(Facts([Fact("step", "8 ms", "", 8e6)]), ReportTable("t", ["a"], [["1"]], raw={"sum": 2.5}))
    )
    assert 'data-fact="step" data-raw="8000000.0"' in words
    assert 'data-table="t" data-sum="2.5"' in words


def absent(recording) -> dict[str, str]:
    """Sections that show nothing, and why."""
    sections = run_page.page(Run.of(recording)).sections
    return {section.name: section.absent for section in sections if section.absent}


def test_operations_outside_of_steps_are_not_said_to_be_missing():
    outside = [dataclasses.replace(one, step=-1) for one in by_hand().spans if one.kind != "step"]
    assert absent(with_spans(by_hand(), *outside))["timeline"] == "No operation has ended inside a step."


def test_a_step_that_takes_no_time_has_nothing_to_wait_for_and_no_load_over_time():
    spans = [dataclasses.replace(one, issued_ns=0, start_ns=0, end_ns=0, wait_until_ns=0) for one in by_hand().spans]
    recording = with_spans(with_kernels(with_changes(with_loads(by_hand()))), *spans)
    assert absent(recording) == {
        "critical-path": "Step 1 took no time.",
        "layers": "Only predictions of programs that run modules know their layers.",
    }
    links = next(one for one in run_page.page(Run.of(recording)).sections if one.name == "links")
    assert Words("Load over time: no time passed in step 1.") in links.blocks


def test_a_page_lists_the_twenty_most_expensive_kernels():
    sections = {one.name: one for one in run_page.page(Run.of(with_kernels(by_hand(), 25))).sections}
    (table,) = sections["kernels"].blocks
    assert isinstance(table, ReportTable)
    rows = table.grid("page").rows
    assert (table.title, len(rows)) == ("The 20 most expensive kernels", 20)
    assert rows[0] == ["mm", "0x8 x 8, float32", "roofline", "10.0 us", "2", "4.0 %"]
    assert table.raw == {"us": 500.0}
    words = render.html(page(table))
    assert "law 96.0 %, roofline 4.0 %. 5 more are in kernels.csv.</p>" in words
    assert absent(by_hand())["kernels"] == "Only a prediction on GPUs lists its kernels."


def test_a_page_takes_the_place_of_an_older_one(tmp_path):
    path = tmp_path / "new" / "page.html"
    render.write(page(Words("first")), path)
    render.write(page(Words("second")), path)
    assert "second" in path.read_text(encoding="utf-8")
    assert [one.name for one in path.parent.iterdir()] == ["page.html"]


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"file/page\.html: could not be written: .*[a-z]$"):
        render.write(page(Words("x")), tmp_path / "file" / "page.html")


def test_half_a_letter_in_a_label_is_no_obstacle(tmp_path):
    render.write(page(Words("\ud800 half")), tmp_path / "page.html")
    assert "half" in (tmp_path / "page.html").read_text(encoding="utf-8")

"""The page of a run as its reader has it: opened from disk in Chromium, for every scenario of the library."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports import report
from reports.analysis.frames import KEYS, STEP
from reports.analysis.step_breakdown import parts_of_step, steady_kept, steady_steps, typical_step, utilisation_of
from reports.compare.comparison import compare
from reports.page import FOLDER
from reports.run import Run
from reports.sections.address import address
from reports.side_by_side.frames import side_by_side
from reports.store import run_folder as store
from reports.terminal import text
from scenarios.config.load import load
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from sim.run import simulate
from tests.reports.page.browser import PHONE, Browser
from tests.reports.recordings import rows_as

ROOT = Path(__file__).parents[3]
LIBRARY = sorted(path.stem for path in (ROOT / "scenarios" / "library").glob("*.toml"))
TYPICAL = "criteo_small_2x2"
MOST_STEPS = 2  # of the others
MOST_BYTES = 5_000_000

Reported = Callable[[str], tuple[Run, Path]]

READY = "document.documentElement.dataset.ready == 'yes'"
SECTIONS = """[...document.querySelectorAll("main > section")].map(section => [
    section.id,
    section.classList.contains("absent"),
    section.querySelector(".reason")?.innerText.trim() ?? "",
    [...section.querySelectorAll("figure, table, dl, p, pre")].filter(one => one.clientHeight > 0).length,
])"""
# Of each chart in sight, how high it is and whether each of its figures has its whole plot, with something drawn in it.
CHARTS = """[...document.querySelectorAll("[data-chart]")].filter(one => !one.closest("details:not([open])"))
.map(one => {
    const root = [...Bokeh.index].find(view => one.contains(view.el));
    const figures = (root.model.type == "Figure" ? [root] : root.child_views).filter(view => view.frame);
    const isWhole = ({bbox}, model) => bbox.width > 100 && bbox.height >= Math.max(model.frame_height, 50);
    const isDrawn = (view) => isWhole(view.frame, view.model) && view.model.renderers.length > 0;
    return [one.dataset.chart, one.clientHeight, figures.length > 0 && figures.every(isDrawn)];
})"""
TIMELINE = """((figure) => ({
    from: Number(figure.dataset.from), until: Number(figure.dataset.until), shown: Number(figure.dataset.shown),
    marked: Number(figure.dataset.marked),
    count: figure.querySelector(".count").innerText, checked: [...figure.querySelectorAll("[data-operation]:checked")]
        .map(box => [box.dataset.name, Number(box.dataset.spans)]),
    drawn: [...Bokeh.index].map(view => view.model.document.get_model_by_name("shown")).find(one => one).indices.length,
}))(document.querySelector("[data-timeline]"))"""
# Shares of the chart's box: where its frame begins and ends.
FRAME = """((box, frame) => [frame.left / box.width, frame.top / box.height, frame.right / box.width,
    frame.bottom / box.height])(document.querySelector("#chart-timeline").getBoundingClientRect(),
    [...Bokeh.index].find(view => view.frame && view.model.document.get_model_by_name("spans")).frame.bbox)"""
LANES = """[...Bokeh.index].find(view => view.frame && view.model.document.get_model_by_name("spans"))
    .model.y_range.start + 0.5"""
TOOLTIPS = """(() => {
    const found = [];
    const look = (root) => {
        for (const one of root.querySelectorAll("*")) {
            if (one.classList.contains("bk-tooltip-content")) found.push(one.innerText);
            if (one.shadowRoot) look(one.shadowRoot);
        }
    };
    look(document);
    return found.join(" ");
})()"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Return a library scenario's run and its page, made when first asked for."""
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def make(name: str) -> tuple[Run, Path]:
        path = ROOT / "scenarios" / "library" / f"{name}.toml"
        steps = load(path, {}).run.steps
        scenario = load(path, {"steps": steps if name == TYPICAL else min(steps, MOST_STEPS)})
        place = store.write(simulate(scenario, build(scenario)), folder / name)
        run = store.load(place)
        return run, report.write(run, place / FOLDER)

    return make


@pytest.fixture
def typical(reported: Reported, browser: Browser) -> Run:
    """Return the run whose page is open and ready."""
    run, page = reported(TYPICAL)
    browser.open(page)
    browser.wait_until(READY)
    return run


# The height of a notebook's frame and whether its chart has a plot, once the chart is drawn.
FRAMED = """((frame, view) => view && frame.style.height != "420px"
    && [frame.clientHeight, view.frame.bbox.height > 0])(
    document.querySelector("iframe"), [...document.querySelector("iframe").contentWindow.Bokeh?.index ?? []][0])"""


def test_a_plot_in_a_notebook_is_drawn_in_a_frame_of_its_height(
    reported: Reported, browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "notebook.html"
    page.write_text(reported(TYPICAL)[0].plot("parts")._repr_html_(), encoding="utf-8")
    browser.open(page)
    height, is_drawn = browser.wait_until(FRAMED)
    assert (150 < height < 420, is_drawn, browser.console_errors(), browser.requests()) == (True, True, [], [])


UNFOLDED = """(() => {
    document.querySelectorAll("details").forEach(one => one.open = true);
    return true;
})()"""
DRAWN = """[...document.querySelectorAll("[data-chart]")].every(one => [...Bokeh.index].some(view =>
    one.contains(view.el) && (view.model.type == "Figure" ? [view] : view.child_views)
        .every(each => !each.frame || each.frame.bbox.height > 0)))"""


def check_whole(browser: Browser, page: Path) -> None:
    """Opens a page on which nothing goes wrong and nothing is missing, be it folded or not."""
    browser.open(page)
    browser.wait_until(READY)
    assert browser.evaluate(UNFOLDED)
    browser.wait_until(DRAWN)
    assert browser.console_errors() == []
    assert browser.requests() == []
    for section, is_absent, reason, seen in browser.evaluate(SECTIONS):
        assert reason.endswith(".") == is_absent, section
        assert seen > 0, section
    for chart, height, is_drawn in browser.evaluate(CHARTS):
        assert height > 50, chart
        assert is_drawn, chart
    words = browser.evaluate("document.querySelector('main').innerText")
    assert re.findall(r".*\b(?:nan|NaN|None|undefined|inf|Infinity)\b.*", words) == []
    assert page.stat().st_size <= MOST_BYTES


# Alike in what their pages have to one of the others, such as `TYPICAL`.
ALIKE = {
    "criteo_dlrm_2x4",
    "criteo_dlrm_2x4_straggler",
    "criteo_dlrm_8x8",
    "job_best_interval",
    "job_bloom",
    "job_cpr",
    "job_hlat",
    "job_megascale",
    "job_opt",
    "mlperf_dcnv2",
    "mlperf_dlrm_v1",
    "mlperf_dlrm_v1_pytorch_v0_7",
    "mlperf_dlrm_v1_pytorch_v1_0",
    "mlperf_dlrm_v1_v0_7",
    "powersgd_16x1_10g",
    "powersgd_4x2_3g",
    "twrw_2x2",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in LIBRARY])
def test_every_library_scenario_has_a_whole_page(browser: Browser, reported: Reported, name: str) -> None:
    check_whole(browser, reported(name)[1])


def as_measured(run: Run, folder: Path) -> Path:
    """Return the run as if it had been measured and everything had taken a tenth longer."""
    spans = run.spans
    times = {name: spans[name] * 11 // 10 for name in map(str, spans) if name.endswith("_ns") and name != "formula_ns"}
    rows = rows_as(Span, spans.assign(**times))
    info = dataclasses.replace(run.info, world="real")
    return store.write(Recording(info=info, spans=rows), folder)


def test_a_comparison_has_a_whole_page_that_leads_to_the_worst_cases(
    browser: Browser, reported: Reported, tmp_path: Path
) -> None:
    run, _ = reported(TYPICAL)
    folders = (tmp_path / "predicted", as_measured(run, tmp_path / "measured"))
    page = report.write_comparison(compare(run, store.load(folders[1])), folders, tmp_path / "out")
    check_whole(browser, page)
    browser.keep("comparison")
    for world in ("predicted", "measured"):
        browser.open(page)
        browser.wait_until(READY)
        browser.click(f"#worst a[href*='{world}']")
        browser.wait_until(f"location.hash.startsWith('#timeline') && {READY}")
        assert browser.evaluate(TIMELINE)["marked"] >= 1


def test_runs_beside_each_other_have_a_whole_page(browser: Browser, reported: Reported, tmp_path: Path) -> None:
    names = (TYPICAL, "twrw_2048x8")
    found = side_by_side([(name, reported(name)[0]) for name in names])
    check_whole(browser, report.write_side_by_side(found, [tmp_path / name for name in names], tmp_path / "out"))
    browser.keep("beside")


@pytest.mark.parametrize(
    "name",
    [
        TYPICAL,
        "all_reduce_4x1_200mbit",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("criteo_dlrm_8x8", "twrw_2048x8")),
    ],
)
def test_a_page_is_as_wide_as_a_phone_in_the_dark(browser: Browser, reported: Reported, name: str) -> None:
    browser.open(reported(name)[1], dark=True, phone=True)
    browser.wait_until(READY)
    assert browser.evaluate("document.documentElement.scrollWidth") == PHONE[0]  # else a phone shows all of it smaller
    assert browser.console_errors() == []


MANY_TABLES = """
program = "dlrm"
run = {steps = 2, seed = 1, batch_size = 2048, payload = "sizes", fidelity = "flows", library = "nccl"}
cluster = {profile = "dgx_h100", hosts = 1, gpus_per_host = 2}
[model]
dense_features = 13
bottom = [512, 256, 64]
top = [512, 256, 1]
interaction = {kind = "dot"}
embedding_dim = 64
optimizer = {kind = "adagrad", learning_rate = 0.005}
[[model.tables]]
name = "t"
count = 300
rows = 200000
ids_per_sample = 4
ids = {zipf = 1.05}
sharding = ["table_wise", "column_wise", "row_wise"]
"""


def test_page_of_300_tables_is_short_until_it_is_unfolded(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "many_tables.toml"
    path.write_text(MANY_TABLES)
    scenario = load(path, {})
    page = report.write(store.load(store.write(simulate(scenario, build(scenario)), tmp_path / "run")), tmp_path)
    for phone in (True, False):
        browser.open(page, phone=phone)
        browser.wait_until(READY)
        assert browser.evaluate("document.documentElement.scrollHeight") <= 6000
    browser.click("nav a[href='#plan']")
    browser.click("#plan details details summary")
    browser.find("#plan [data-rows]").send_keys("t_29")
    shown = browser.evaluate("""[...document.querySelectorAll("#plan [data-table='Placement of tables'] tbody tr")]
        .filter(row => row.clientHeight).map(row => row.cells[0].innerText).sort()""")
    assert shown == sorted(["t_29", *(f"t_29{at}" for at in range(10))])


def facts(browser: Browser) -> dict[str, tuple[float, str]]:
    """Return the tiles: by name, the number and how it stands there."""
    found = browser.evaluate("""[...document.querySelectorAll("[data-fact]")].map(one =>
        [one.dataset.fact, Number(one.dataset.raw), one.querySelector("dd").firstChild.textContent.trim()])""")
    return {name: (raw, words) for name, raw, words in found}


def check_facts(browser: Browser, typical: Run) -> None:
    steady = steady_steps(typical.steps)
    spent = parts_of_step(typical, steady_kept(typical)).set_index("part")["mean_ns"]
    parts = ("compute", "exposed transfer", "waiting for other ranks", "idle", "hidden communication")
    step_ns, rate = float(steady["step_ns"].median()), float(steady["samples_per_s"].median())
    memory, load = typical.rank_memory["used_share"].max(), typical.links["utilisation"].max()
    done = utilisation_of(typical)
    assert done is not None
    assert facts(browser) == {
        "step time": (step_ns, text.duration(step_ns)),
        "samples/s": (rate, text.number(rate)),
        "arithmetic": (done.flops_per_s, text.flop_rate(done.flops_per_s)),
        "MFU": (done.mfu, text.percent(done.mfu)),
        **{part: (spent[part], text.duration(spent[part])) for part in parts if spent[part]},
        "fullest memory": (memory, text.percent(memory)),
        "hottest link": (load, text.percent(load)),
    }


def totals(browser: Browser, title: str) -> dict[str, float]:
    """Return what a table says that its numbers add up to."""
    found = browser.evaluate("({...document.querySelector(`[data-table='${arguments[0]}']`).dataset})", title)
    return {name: float(value) for name, value in found.items() if name != "table"}


def check_totals(browser: Browser, typical: Run) -> None:
    step = typical_step(typical)
    of_step = typical.steps[typical.steps["step"] == step]
    assert totals(browser, "Steps") == {"sum": typical.steps["step_ns"].sum()}
    assert totals(browser, "The whole path") == {"sum": of_step["step_ns"].sum()}
    operations = typical.operations_of(steady_kept(typical))
    added = ("mean_ns", "exposed_ns", "wait_ns", "hidden_ns")
    assert totals(browser, "All operations") == {name: operations[name].sum() for name in added}
    links = typical.links
    carried = (links["bytes_carried"] * links["link_count"]).sum()
    assert totals(browser, "Classes of links") == {"bytes": carried}
    parts = totals(browser, "Breakdown over ranks")
    whole = typical.steps.loc[typical.steps["step"].isin(steady_kept(typical)), "step_ns"].mean()
    assert sum(parts[name] for name in ("compute", "transfer", "wait", "idle", "skew")) == pytest.approx(whole)


def operations(run: Run) -> pd.Series:
    """Return how many spans each operation has in steps."""
    spans = run.spans
    return spans[(spans["kind"] != STEP) & (spans["step"] >= 0)].groupby(KEYS).size()


def check_timeline(browser: Browser, typical: Run) -> None:
    """Every span of a small run is drawn."""
    found, counts = browser.evaluate(TIMELINE), operations(typical)
    assert found["shown"] == found["drawn"] == counts.sum()
    assert found["count"] == f"{counts.sum():,} of {counts.sum():,} spans"
    assert sorted(spans for _, spans in found["checked"]) == sorted(counts)


def test_facts_totals_and_spans_are_those_of_the_frames(browser: Browser, typical: Run) -> None:
    check_facts(browser, typical)
    check_totals(browser, typical)
    check_timeline(browser, typical)


def test_an_operation_that_is_unchecked_is_not_drawn(browser: Browser, typical: Run) -> None:
    before = browser.evaluate(TIMELINE)
    picture = browser.screenshot("timeline", "[data-timeline] .drawing").read_bytes()
    name, spans = before["checked"][0]
    browser.click(f"[data-operation][data-name='{name}']")
    after = browser.evaluate(TIMELINE)
    assert after["checked"] == before["checked"][1:]
    assert after["shown"] == after["drawn"] == before["shown"] - spans
    assert after["count"] == f"{before['shown'] - spans:,} of {before['shown']:,} spans"
    assert browser.screenshot("timeline-without-one", "[data-timeline] .drawing").read_bytes() != picture
    browser.click("[data-show='none']")
    assert browser.evaluate(TIMELINE)["drawn"] == 0
    browser.click("[data-show='all']")
    assert browser.evaluate(TIMELINE) == before


def test_a_timeline_shows_one_part_alone_and_finds_operations(browser: Browser, typical: Run) -> None:
    counts = operations(typical)
    is_compute = counts.index.get_level_values("kind") == "compute"
    for part, chosen in (("compute", is_compute), ("communication", ~is_compute)):
        browser.click(f"[data-show='{part}']")
        assert browser.evaluate(TIMELINE)["drawn"] == counts[chosen].sum()
    browser.click("[data-show='all']")
    browser.find(".find").send_keys("UPDATE")
    found = browser.evaluate(TIMELINE)
    named = counts[counts.index.get_level_values("label").str.contains("update")]
    assert len(found["checked"]) == len(named) > 0
    assert found["drawn"] == named.sum()


def span(found: dict[str, Any]) -> tuple[float, float]:
    """Return what the axis shows, in ms."""
    return found["from"], found["until"]


def test_a_timeline_zooms_by_buttons_and_by_a_drag_and_back(browser: Browser, typical: Run) -> None:
    begin, end = span(browser.evaluate(TIMELINE))
    step = typical.steps[typical.steps["step"] == typical_step(typical)].iloc[0]
    origin = typical.outline.first_ns
    assert begin <= (step["start_ns"] - origin) / 1e6 < (step["end_ns"] - origin) / 1e6 <= end
    browser.click("[data-zoom='0.5']")
    quarter = (end - begin) / 4
    assert span(browser.evaluate(TIMELINE)) == pytest.approx((begin + quarter, end - quarter))
    browser.click("[data-shift='0.5']")
    assert span(browser.evaluate(TIMELINE)) == pytest.approx((begin + 2 * quarter, end))
    browser.click("[data-reset]")
    whole = span(browser.evaluate(TIMELINE))
    assert whole[0] <= begin < end <= whole[1]
    left, top, right, bottom = browser.evaluate(FRAME)
    middle, length = (top + bottom) / 2, whole[1] - whole[0]
    browser.show("#chart-timeline")
    browser.drag("#chart-timeline", (left + (right - left) * 0.25, middle), (left + (right - left) * 0.5, middle))
    expected = (whole[0] + length * 0.25, whole[0] + length * 0.5)
    assert span(browser.evaluate(TIMELINE)) == pytest.approx(expected, abs=length * 0.01)  # a pixel or two
    browser.click("[data-reset]")
    assert span(browser.evaluate(TIMELINE)) == whole


def test_an_address_that_is_none_stops_nothing(browser: Browser, reported: Reported) -> None:
    browser.open(reported(TYPICAL)[1], "%E0%A4%A")
    browser.wait_until(READY)
    assert browser.console_errors() == []


def test_an_address_leads_to_a_span_and_the_mouse_says_what_it_is(browser: Browser, reported: Reported) -> None:
    run, page = reported(TYPICAL)
    spans = run.spans[(run.spans["step"] == typical_step(run)) & (run.spans["rank"] == run.spans["rank"].min())]
    spans = spans[(spans["kind"] == "compute") & (spans["stream"] == "main")]
    one = spans.assign(took=spans["end_ns"] - spans["start_ns"]).nlargest(1, "took").iloc[0]
    start, end, step, origin = (*map(int, one[["start_ns", "end_ns", "step"]]), run.outline.first_ns)
    browser.open(page, address("", run, one["label"], (start, end)).removeprefix("#"))
    browser.wait_until(READY)
    found = browser.evaluate(TIMELINE)
    middle, (begin, until) = (start + end) / 2e6 - origin / 1e6, span(found)
    same = run.spans[(run.spans[KEYS] == one[KEYS]).all(axis=1)]
    near = (same["end_ns"] >= begin * 1e6 + origin) & (same["start_ns"] <= until * 1e6 + origin)
    assert found["marked"] == int(near.sum()) >= 1
    assert sum(count for _, count in found["checked"]) == found["shown"]  # nothing is hidden
    assert begin < (start - origin) / 1e6 < (end - origin) / 1e6 < until
    assert until - begin == pytest.approx(5 * (end - start) / 1e6)  # what is beside it is seen, too
    left, top, right, bottom = browser.evaluate(FRAME)
    browser.show("#chart-timeline")
    of_first_lane = top + (bottom - top) / browser.evaluate(LANES) / 2
    browser.hover("#chart-timeline", (left + (right - left) * (middle - begin) / (until - begin), of_first_lane))
    words = " ".join(browser.wait_until(TOOLTIPS).split())
    assert words.startswith(f"{one['label']} rank: ")
    assert f" step: {step} took: {text.duration(end - start)} " in words


def test_the_dark_page_is_dark_and_paper_is_white(browser: Browser, reported: Reported) -> None:
    ink = "[...Bokeh.index].find(view => view.model.type == 'Figure').model.below[0].major_label_text_color"
    colours = {}
    for dark in (False, True):
        browser.open(reported(TYPICAL)[1], dark=dark)
        browser.wait_until(READY)
        colours[dark] = browser.evaluate("getComputedStyle(document.body).backgroundColor"), browser.evaluate(ink)
        browser.keep(f"page-{'dark' if dark else 'light'}")
    assert all(one != other for one, other in zip(*colours.values(), strict=True))
    _, pages = browser.render("page")
    assert 2 <= pages <= 30
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == colours[False][0]


def test_a_folded_table_opens(browser: Browser, typical: Run) -> None:
    browser.click("#hidden summary")
    browser.click("#hidden details details summary")
    assert browser.evaluate("document.querySelector('#hidden details details table').clientHeight") > 100
    assert browser.console_errors() == []

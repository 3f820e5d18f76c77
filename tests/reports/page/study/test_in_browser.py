"""The page of a study of 1,000 points in Chromium: what it shows after each sort and filter is what pandas says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from reports import report
from reports.page import PAGE_FILE
from reports.study.frame import Goal, pareto, study_frame
from tests.reports.page.browser import PHONE, Browser
from tests.reports.page.study.synthetic import write_study

COUNT = 1000
READY = "document.documentElement.dataset.ready == 'yes'"
SETTLED = f"{READY} && window.study && !window.study.pending && window.study.views.every(view => !view.missed)"
POINTS = """[...document.querySelectorAll(".points tbody tr")].map(row =>
    Number(row.querySelector("th").innerText.match(/#(\\d+)/)[1]))"""
LEVELS = """[...document.querySelectorAll(".levels table")].flatMap(table =>
    [...table.querySelectorAll("tr")].map(row =>
        [table.dataset.key, row.dataset.value, Number(row.dataset.count), Number(row.dataset.median)]))"""
SQUARES = """[...document.querySelectorAll(".heat tbody td")].filter(one => one.dataset.number).map(one =>
    [one.dataset.row, one.dataset.column, Number(one.dataset.number)])"""
FRONT = """(named => [...named("front-line").data.x].map((x, at) => [x, named("front-line").data.y[at]]))
    (name => [...Bokeh.index][0].model.document.get_model_by_name(name))"""
# Where a point of the front's figure is, as shares of its box.
PLACE = """((view, box) => [view.frame.x_scale.compute(arguments[0]) / box.width,
    view.frame.y_scale.compute(arguments[1]) / box.height])
    ([...Bokeh.index][0], document.querySelector("#chart-front").getBoundingClientRect())"""
HOSTS, RATE, KIND, SHARDING = "cluster.hosts", "cluster.nic.rate", "compression.kind", "model.tables[*].sharding"
AXIS_PX, TOP_PX, LENGTH_PX = 436, 62, 360  # of an axis of the parallel coordinates


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_study(tmp_path_factory.mktemp("studies") / "wide", COUNT)
    report.write_study(folder)
    return folder


@pytest.fixture(scope="module")
def frame(study: Path) -> pd.DataFrame:
    """The points, with the scenario's own values of the baseline."""
    found = study_frame(study)
    changed: dict[str, Any] = {HOSTS: 2, "run.batch_size": 2048, RATE: "100 Gbit/s"}
    for key, value in changed.items():
        found.loc[0, key] = value
    return found


@pytest.fixture
def page(study: Path, browser: Browser) -> Browser:
    browser.open(study / PAGE_FILE)
    browser.wait_until(SETTLED)
    return browser


def finish(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["status"] == "done").to_numpy(bool)]


def count(browser: Browser) -> int:
    """How many points the bar says are left, once all is drawn."""
    browser.wait_until(SETTLED)
    words = browser.find(".bar .count").text
    left, of = re.fullmatch(r"([\d,]+) of ([\d,]+) points", words).groups()  # type: ignore[union-attr]
    assert of == f"{COUNT + 1:,}"
    return int(left.replace(",", ""))


def sort(browser: Browser, column: str) -> list[int]:
    browser.click(f"th[data-column='{column}'] button")
    return list(browser.evaluate(POINTS))


def type_(browser: Browser, selector: str, words: str) -> None:
    browser.show(selector)
    browser.find(selector).clear()
    browser.find(selector).send_keys(words)


def drag(browser: Browser, column: str, begin: float, end: float) -> None:
    """Along an axis of the parallel coordinates, from 0, its upper end, to 1."""
    browser.show(f"[data-axis='{column}']")
    shares = [(TOP_PX + place * LENGTH_PX) / AXIS_PX for place in (begin, end)]
    browser.drag(f"[data-axis='{column}']", (0.5, shares[0]), (0.5, shares[1]))


def choose(browser: Browser, name: str, value: str) -> None:
    Select(browser.find(f"select[name='{name}']")).select_by_value(value)
    browser.wait_until(SETTLED)


def order(frame: pd.DataFrame, column: str, *, ascending: bool) -> list[int]:
    return frame.sort_values([column, "index"], ascending=[ascending, True])["index"].tolist()


def test_the_page_is_whole_and_asks_for_nothing(page: Browser) -> None:
    assert count(page) == COUNT + 1
    assert page.console_errors() == []
    assert page.requests() == []
    words = page.evaluate("document.querySelector('main').innerText")
    assert re.findall(r".*\b(?:nan|NaN|undefined|Infinity)\b.*", words) == []
    assert page.evaluate("document.querySelectorAll('.parallel .axis').length") == 8


@pytest.mark.slow
def test_the_page_of_5000_points_is_small(tmp_path: Path) -> None:
    assert report.write_study(write_study(tmp_path / "wide", 5000)).stat().st_size < 3_000_000


def test_the_table_sorts_by_every_kind_of_column(page: Browser, frame: pd.DataFrame) -> None:
    assert page.evaluate(POINTS) == order(frame, "samples_per_s", ascending=False)[:25]
    steps = order(frame, "step_ns", ascending=True)
    assert sort(page, "step_ns") == steps[:25]
    page.click("[data-turn='1']")
    assert page.evaluate(POINTS) == steps[25:50]
    page.click("[data-turn='Infinity']")
    assert page.evaluate(POINTS) == steps[COUNT // 25 * 25 :]  # what failed has no step, and is last
    assert sort(page, "step_ns") == order(frame, "step_ns", ascending=False)[:25]
    by_rate = frame.assign(rate=frame[RATE].str.split().str[0].astype(float))
    assert sort(page, RATE) == order(by_rate, "rate", ascending=True)[:25]
    assert sort(page, "index")[:3] == [0, 1, 2]
    assert page.find("th[data-column='index']").get_attribute("aria-sort") == "ascending"


def test_typing_filters_the_table_and_the_charts(page: Browser, frame: pd.DataFrame) -> None:
    type_(page, f"[data-filter='{HOSTS}']", "<=4")
    assert count(page) == (frame[HOSTS] <= 4).sum()
    type_(page, "[data-filter='step_ns']", "5..20")
    left = frame[(frame[HOSTS] <= 4) & frame["step_ns"].between(5e6, 20e6)]
    assert count(page) == len(left) > 100
    assert page.evaluate(POINTS) == order(left, "samples_per_s", ascending=False)[:25]
    medians = left.groupby(RATE)["samples_per_s"].median()
    shown = {value: median for key, value, _, median in page.evaluate(LEVELS) if key == RATE}
    assert shown == pytest.approx(medians.to_dict())
    type_(page, ".find", "row_wise")
    assert count(page) == left[SHARDING].str.contains("row_wise").sum()
    page.click(".bar .buttons button:last-child")
    assert count(page) == COUNT + 1
    assert page.find(f"[data-filter='{HOSTS}']").get_attribute("value") == ""
    type_(page, "[data-filter='sentence']", "45 GiB")
    assert count(page) == frame["sentence"].str.contains("45 GiB").sum() > 0


def test_a_drag_along_an_axis_filters_all_else_and_a_click_takes_it_back(page: Browser, frame: pd.DataFrame) -> None:
    drag(page, HOSTS, 0.01, 0.32)
    assert count(page) == frame[HOSTS].isin([16, 32]).sum()
    drag(page, "samples_per_s", 0.3, 0.6)
    low, high = page.evaluate("study.chosenRange(study.goals[0])")
    rates = frame["samples_per_s"]
    ends = rates.min(), rates.max()
    assert low == pytest.approx(ends[1] * (ends[0] / ends[1]) ** 0.6, rel=0.05)  # on powers of ten; a pixel or two
    assert high == pytest.approx(ends[1] * (ends[0] / ends[1]) ** 0.3, rel=0.05)
    left = frame[frame[HOSTS].isin([16, 32]) & rates.between(low, high)]
    assert count(page) == len(left) > 100
    assert page.evaluate(POINTS) == order(left, "samples_per_s", ascending=False)[:25]
    drag(page, HOSTS, 0.5, 0.5)
    assert count(page) == rates.between(low, high).sum()
    page.find("[data-axis='samples_per_s']").send_keys(Keys.ESCAPE)
    page.find(f"[data-axis='{HOSTS}']").send_keys(Keys.ARROW_DOWN)
    assert count(page) == (frame[HOSTS] < 32).sum()
    page.click(f".levels [data-key='{HOSTS}'] [data-value='8'] button")
    assert count(page) == frame[HOSTS].isin([1, 2, 4, 16]).sum()


def test_keys_against_the_goal_and_the_heat_map_are_those_of_pandas(page: Browser, frame: pd.DataFrame) -> None:
    out = finish(frame).fillna({HOSTS: 0})
    choose(page, "goal", "usd_per_1e9_samples")
    for key, value, points, median in page.evaluate(LEVELS):
        of = out[key].astype(object).where(out[key].notna(), "-").astype(str)
        own = out.loc[of == value, "usd_per_1e9_samples"]
        assert (points, median) == (len(own), pytest.approx(own.median())), (key, value)
    for name, best in (("best", "min"), ("median", "median")):
        choose(page, "rows", RATE)
        choose(page, "columns", KIND)
        choose(page, "of", name)
        expected = out.fillna({KIND: "-"}).groupby([RATE, KIND])["usd_per_1e9_samples"].agg(best)
        found = {(row, column): number for row, column, number in page.evaluate(SQUARES)}
        assert found == pytest.approx(expected.to_dict())
    page.click(".heat [data-row='25 Gbit/s'][data-column='powersgd'] button")
    assert count(page) == ((frame[RATE] == "25 Gbit/s") & (frame[KIND] == "powersgd")).sum()


@pytest.mark.parametrize("x", ["usd_per_1e9_samples", "exposed_share"])
def test_the_front_is_that_of_the_points_shown(page: Browser, frame: pd.DataFrame, x: str) -> None:
    choose(page, "x", x)
    type_(page, f"[data-filter='{HOSTS}']", "<8")
    assert count(page) == (frame[HOSTS] < 8).sum()
    left = finish(frame)
    left = left[left[HOSTS] < 8]
    expected = pareto(left, [Goal(x, most=False), Goal("samples_per_s", most=True)])
    drawn = [unscale(page, measure, at) for at, measure in enumerate((x, "samples_per_s"))]
    factor = 0.01 if x == "exposed_share" else 1
    assert drawn == [pytest.approx((expected[x] / factor).tolist()), pytest.approx(expected["samples_per_s"].tolist())]
    assert len(expected) > 2


def unscale(browser: Browser, measure: str, at: int) -> list[float]:
    """Of the front's line, the measure's numbers where they are drawn."""
    code = "arguments[0].map(one => study.measures.find(({ name }) => name === arguments[1]).unscaled(one))"
    found: list[Any] = browser.evaluate(code, [place[at] for place in browser.evaluate(FRONT)], measure)
    return found


def test_a_click_on_a_point_shows_it_in_the_table_with_its_command(page: Browser, frame: pd.DataFrame) -> None:
    dearest = finish(frame).nlargest(1, "usd_per_1e9_samples").iloc[0]
    place = page.evaluate("[study.front.x, study.front.y].map((one, at) => one.scaled(arguments[at]))",
                          *map(float, dearest[["usd_per_1e9_samples", "samples_per_s"]]))  # fmt: skip
    page.show("#chart-front")
    share = tuple(page.evaluate(PLACE, *place))
    page.drag("#chart-front", share, share)
    index = int(page.wait_until("document.querySelector('tr.chosen th')?.innerText").removeprefix("#"))
    assert index in page.evaluate(POINTS)
    chosen = frame.loc[index]  # or one that lies on it
    assert chosen[["usd_per_1e9_samples", "samples_per_s"]].tolist() == pytest.approx(
        dearest[["usd_per_1e9_samples", "samples_per_s"]].tolist(), rel=0.03
    )
    command = page.find(".detail pre").get_attribute("textContent") or ""
    assert command.startswith("twinstep predict criteo_dlrm_2x4 --set run.steps=6 --set ")
    assert f"--set cluster.hosts={chosen[HOSTS]} " in command
    assert f"--set 'cluster.nic.rate={chosen[RATE]}'" in command


def test_runs_are_linked_from_the_table(page: Browser) -> None:
    sort(page, "index")
    hrefs = page.evaluate("[...document.querySelectorAll('.points tbody a')].map(one => one.getAttribute('href'))")
    assert hrefs == [f"runs/{at:016x}-flows/" for at in range(4)]


@pytest.mark.parametrize(("dark", "phone"), [(False, False), (True, True)])
def test_a_study_is_read_in_the_dark_and_on_a_phone(browser: Browser, study: Path, dark: bool, phone: bool) -> None:
    browser.open(study / PAGE_FILE, dark=dark, phone=phone)
    browser.wait_until(SETTLED)
    assert browser.console_errors() == []
    if phone:
        assert browser.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    browser.keep(f"study-{'dark' if dark else 'light'}{'-phone' if phone else ''}")
    ink, ground = (
        browser.evaluate(f"getComputedStyle(document.querySelector('.bar')).{name}")
        for name in ("color", "backgroundColor")
    )
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > sum(map(int, re.findall(r"\d+", ground)[:3]))) == dark


@pytest.mark.parametrize("count_", [1, 6])
def test_small_studies_have_a_page_too(browser: Browser, tmp_path: Path, count_: int) -> None:
    folder = write_study(tmp_path / "small", count_, goals={"step_ns": "least"})
    browser.open(report.write_study(folder))
    browser.wait_until(SETTLED)
    assert browser.console_errors() == []
    assert browser.find(".bar .count").text == f"{count_ + 1} of {count_ + 1} points"


def test_a_study_of_which_all_points_failed_lists_them(browser: Browser, tmp_path: Path) -> None:
    folder = write_study(tmp_path / "failed", 3, failed=True)
    browser.open(report.write_study(folder))
    browser.wait_until(SETTLED)
    assert browser.console_errors() == []
    assert browser.evaluate(POINTS) == [0, 1, 2, 3]

"""The browser of the other tests: whether it would notice what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.page.browser import Browser, start

PAGE = """<!DOCTYPE html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body { background: white } @media (prefers-color-scheme: dark) { body { background: black } }
p { break-after: page }</style><p id="one">one</p><p>two</p><div id="pad" style="height: 3000px">three</div>
"""
COUNTED = """<script>
const pad = document.getElementById("pad"), seen = [];
for (const kind of ["mousedown", "mouseup", "click"]) pad.addEventListener(kind, event => seen.push(
    [kind, event.offsetX / pad.clientWidth]));
</script>"""


@pytest.fixture
def page(tmp_path):
    def write(more: str = "") -> Path:
        path = tmp_path / "page.html"
        path.write_text(PAGE + more, encoding="utf-8")
        return path

    return write


def test_a_good_page_has_neither_errors_nor_requests(browser: Browser, page):
    browser.open(page("<img src='data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=='>"))
    assert browser.console_errors() == []
    assert browser.requests() == []


@pytest.mark.parametrize(
    "script", ["throw new Error('broken')", "Promise.reject(new Error('broken'))", "console.error('broken')"]
)
def test_an_error_on_a_page_is_noticed_and_forgotten_with_the_page(browser: Browser, page, script):
    browser.open(page(f"<script>{script}; </script>"))
    browser.wait_until("document.readyState == 'complete'")
    assert "broken" in "".join(browser.console_errors())
    assert browser.console_errors() != []  # asked again
    browser.open(page())
    assert browser.console_errors() == []


@pytest.mark.parametrize(
    "more",
    [
        "<img src='http://example.org/asked.png'>",
        "<link rel='stylesheet' href='https://example.org/asked.css'>",
        "<script>fetch('https://example.org/asked').catch(() => 0)</script>",
        "<script src='asked.js'></script>",
        "<script>new WebSocket('ws://example.org/asked')</script>",
    ],
)
def test_whatever_a_page_asks_for_is_noticed(browser: Browser, page, more):
    browser.open(page(more))
    assert ["asked" in address for address in browser.requests()] == [True]


def test_a_page_is_opened_in_the_dark_and_on_a_phone(browser: Browser, page):
    looks = {}
    for dark, phone in ((False, False), (True, False), (False, True)):
        browser.open(page(), "one", dark=dark, phone=phone)
        colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        looks[dark, phone] = colour, browser.evaluate("innerWidth"), browser.evaluate("location.hash")
    white, black = "rgb(255, 255, 255)", "rgb(0, 0, 0)"
    assert looks == {
        (False, False): (white, 1280, "#one"),
        (True, False): (black, 1280, "#one"),
        (False, True): (white, 390, "#one"),
    }


def test_the_mouse_goes_where_it_is_told(browser: Browser, page):
    browser.open(page(COUNTED))
    browser.click("#pad")
    browser.drag("#pad", (0.25, 0.5), (0.75, 0.5))
    seen = [(kind, round(share, 2)) for kind, share in browser.evaluate("seen")]
    assert seen == [*((kind, 0.5) for kind in ("mousedown", "mouseup", "click")), ("mousedown", 0.25),
                    ("mouseup", 0.75), ("click", 0.75)]  # fmt: skip


def test_pictures_and_prints_are_of_the_whole_page(browser: Browser, page):
    browser.open(page())
    path = browser.screenshot("whole")
    header = path.read_bytes()[:24]
    width, height = (int.from_bytes(header[at : at + 4], "big") for at in (16, 20))
    assert (width, height > 3000) == (1280, True)
    assert browser.render("whole")[1] >= 3  # a page for each paragraph, and more for the rest


def test_timeouts_are_reported_with_the_console(browser: Browser, page):
    browser.open(page("<script>console.error('why')</script>"))
    with pytest.raises(AssertionError, match=r"never true: 1 == 2; console: .*why"):
        browser.wait_until("1 == 2", seconds=0.2)


@pytest.mark.parametrize("name", ["chromium", "chromedriver"])
@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_chromium_tests_skip_but_fail_in_ci(tmp_path, monkeypatch, name, ci, outcome):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr("tests.reports.page.browser.shutil.which", lambda asked: None if asked == name else "/bin/true")
    with pytest.raises(outcome, match=f"{name} is not on PATH"), start(tmp_path):
        pass

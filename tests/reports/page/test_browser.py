"""The browser of the other tests: whether it would notice what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.page.browser import Browser, start

PAGE = """<!DOCTYPE html><meta charset="utf-8"><p>one</p>"""


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

"""The site of the documentation: its search, its width on a phone, and pictures that are not stale."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.reports.page.browser import Browser, start

DOCS = Path(__file__).parents[1] / "docs"
# Of 255: what Chromium's releases and fonts differ by. Another picture differs in many pixels by more.
SAME, MOST = 64, 0.03
FOUND = {
    "all-to-all": "explanation/collectives.html",
    "OOM": "how_to/will_it_fit.html",
    "H200": "reference/profiles.html",
    "own script": "how_to/own_script.html",
    "busbw": "reference/runs.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    strictly = ["--quiet", "--fresh-env", "--nitpicky", "--fail-on-warning", "--doctree-dir", str(folder / "trees")]
    subprocess.run(
        [sys.executable, "-m", "sphinx", *strictly, str(DOCS), str(folder / "html")], check=True, timeout=200
    )
    return folder / "html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("words", FOUND)
def test_search_finds_the_right_page_first(words: str, site: Path, browser: Browser) -> None:
    browser.open(site / "search.html")
    browser.go(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    first = "(document.querySelector('ul.search li a') || {}).href"
    assert str(browser.wait_until(first)).partition("/html/")[2].split("#")[0].split("?")[0] == FOUND[words]


@pytest.mark.slow
@pytest.mark.browser
def test_no_page_goes_sideways_on_a_phone(site: Path, browser: Browser) -> None:
    wide = []
    for page in sorted(site.rglob("*.html")):
        browser.open(page, phone=True)
        if browser.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(page.relative_to(site))
    assert wide == []


@pytest.mark.slow
@pytest.mark.browser
def test_the_pictures_are_todays(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    screen, *drawn = pictures.draw(tmp_path)
    assert screen == pictures.SCREEN.read_text(encoding="utf-8")
    for now, then in zip(map(io.BytesIO, drawn), (pictures.PAGE, pictures.TIMELINE), strict=True):
        one, other = (np.asarray(Image.open(file).convert("L"), dtype=int) for file in (now, then))
        assert one.shape == other.shape
        assert np.mean(np.abs(one - other) > SAME) < MOST

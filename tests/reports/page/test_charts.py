"""Charts in Chromium: bars have their height, and legends and axes take nothing from what is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor

from reports.analysis.by_role import DENSE, REDUCTIONS, WAITING, WHATS
from reports.page import charts, render, theme
from reports.page.blocks import Chart, Page
from reports.page.run import page as run_page
from reports.run import Run
from reports.sections.model import Shown
from tests.reports.page.browser import Browser
from tests.reports.recordings import by_hand

READY = "document.documentElement.dataset.ready == 'yes'"
BAR = 24 * 0.72  # px, what a row gives to its bar


def drawn_height(path: Path, color: str) -> int:
    """Return the pixels of a colour in the column of the picture that has most of them."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return int((pixels == ImageColor.getrgb(color)).all(axis=2).sum(axis=0).max())


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_bars_keep_their_height_beside_a_legend_of_any_length(browser: Browser, tmp_path: Path, phone: bool) -> None:
    counts = (1, 2, 10, 11, len(WHATS))
    blocks = []
    for count in counts:
        layers = {f"{what} {at}.5 %": ([1.0], theme.WHATS[what]) for at, what in enumerate(WHATS[:count])}
        blocks.append(Chart(f"of-{count}", "Parts", charts.stacked_bars(["step 3"], layers, x="ms")))
    render.write(Page(title="bars", about=[], sections=[Shown("bars", "Bars", blocks)]), tmp_path / "page.html")
    browser.open(tmp_path / "page.html", phone=phone)
    browser.wait_until(READY)
    assert browser.console_errors() == []
    for count in counts:
        picture = browser.screenshot(f"bar-of-{count}", f"[data-chart='of-{count}']")
        for what in WHATS[:count]:
            assert drawn_height(picture, theme.WHATS[what]) >= BAR - 1, (count, what)


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_first_drawing_of_a_run_is_a_bar_of_40_px_with_every_piece(
    browser: Browser, tmp_path: Path, phone: bool
) -> None:
    render.write(run_page.page(Run.of(by_hand())), tmp_path / "page.html")
    browser.open(tmp_path / "page.html", phone=phone)
    browser.wait_until(READY)
    first = browser.evaluate("document.querySelector('figure').dataset.picture")
    assert first == "by-what"
    picture = browser.screenshot("first", f"[data-picture='{first}'] svg")
    scale = 2 if phone else 1
    for what in (DENSE, REDUCTIONS, WAITING):  # the pieces of the recording's path
        assert drawn_height(picture, theme.WHATS[what]) >= 40 * scale, what

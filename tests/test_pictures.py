"""The pictures of README and docs are those that `python docs/pictures.py` draws today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FILE = Path(__file__).parents[1] / "docs" / "pictures.py"
# Of 255: what Chromium's releases and fonts differ by. Another picture differs in many pixels by more.
SAME, MOST = 64, 0.03


@pytest.mark.slow
@pytest.mark.browser
def test_the_pictures_are_todays(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("pictures", FILE)
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    screen, page = pictures.drawn(tmp_path)
    assert screen == pictures.SCREEN.read_text(encoding="utf-8")
    now, then = (np.asarray(Image.open(path).convert("L"), dtype=int) for path in (page, pictures.PAGE))
    assert now.shape == then.shape == (pictures.HEIGHT, pictures.WIDTH)
    assert np.mean(np.abs(now - then) > SAME) < MOST

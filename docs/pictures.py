"""Draw the pictures of README and the tutorial: `python docs/pictures.py`.

The terminal is drawn by rich from what `twinstep predict` prints; the page is photographed by Chromium.
`tests/test_site.py` says whether they are stale.
"""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.reports.page.browser import start

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SCREEN, PAGE, TIMELINE = (PICTURES / name for name in ("first_screen.svg", "page.png", "timeline.png"))
TABLES = str(ROOT / "examples" / "tables.csv")
INIT = ("init", "--tables", TABLES, "--profile", "dgx_h100", "--hosts", "2", "--batch-size", "8192")


def main() -> None:
    """Draw all pictures."""
    with TemporaryDirectory() as folder:
        screen, top, timeline = draw(Path(folder))
    SCREEN.write_text(screen, encoding="utf-8")
    PAGE.write_bytes(top)
    TIMELINE.write_bytes(timeline)


def draw(folder: Path) -> tuple[str, bytes, bytes]:
    """Return the first screen as SVG, and the page's top and its timeline as PNG; files are written to `folder`."""
    twinstep(folder, *INIT, "--out", "job.toml")
    printed = twinstep(folder, "predict", "job.toml", "--out", "predicted")
    twinstep(folder, "report", "predicted")
    with start(folder) as browser:
        browser.open(folder / "predicted" / "reports" / "report.html")
        top = base64.b64decode(browser.command("Page.captureScreenshot", format="png")["data"])
        browser.wait_until("document.querySelectorAll('#timeline .bk-Figure, #timeline canvas').length")
        browser.wait_until("Bokeh.documents.every(document => document.is_idle)")
        timeline = browser.screenshot("timeline", "#timeline").read_bytes()
    return terminal(printed), top, timeline


def terminal(printed: str) -> str:
    """Return what a command prints as SVG, which names no font of the network."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print("$ twinstep predict job.toml", style="bold", highlight=False)
    console.print(Text(printed), end="")
    svg = console.export_svg(title="Twinstep", theme=MONOKAI, unique_id="screen")
    return re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)


def twinstep(folder: Path, *words: str) -> str:
    """Run a command of this checkout in `folder`, 80 columns wide, and return what it prints."""
    line = [sys.executable, "-m", "twinstep", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()

"""Draw the pictures of README and the tutorial: `python docs/pictures.py`.

The terminal is drawn by rich from what `twinstep predict` prints; the page is photographed by Chromium.
`tests/test_pictures.py` says whether they are stale.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SCREEN, PAGE = DOCS / "pictures" / "first_screen.svg", DOCS / "pictures" / "page.png"
WIDTH, HEIGHT = 1280, 830
INIT = ("init", "--tables", "examples/tables.csv", "--profile", "dgx_h100", "--hosts", "2", "--batch-size", "8192")


def main() -> None:
    """Draw all pictures."""
    with TemporaryDirectory() as folder:
        screen, page = drawn(Path(folder))
        SCREEN.write_text(screen, encoding="utf-8")
        PAGE.write_bytes(page.read_bytes())


def drawn(folder: Path) -> tuple[str, Path]:
    """Return the first screen as SVG, and the picture of the page, which lies in `folder`."""
    job, run = folder / "job.toml", folder / "predicted"
    twinstep(*INIT, "--out", str(job))
    printed = twinstep("predict", str(job), "--out", str(run))
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print("$ twinstep predict job.toml", style="bold", highlight=False)
    console.print(Text(printed.replace(f"{folder}/", "")), end="")
    svg = console.export_svg(title="Twinstep", theme=MONOKAI, unique_id="screen")
    svg = re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)  # fonts of the network
    twinstep("report", str(run))
    photo = folder / "page.png"
    photograph(run / "reports" / "report.html", photo, WIDTH, HEIGHT)
    return svg, photo


def twinstep(*words: str) -> str:
    """Run a command of this checkout and return what it prints."""
    line = [sys.executable, "-m", "twinstep", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def photograph(page: Path, picture: Path, width: int, height: int) -> None:
    """Write what Chromium shows of the top of a page."""
    size = [f"--window-size={width},{height}", "--hide-scrollbars", "--virtual-time-budget=10000"]
    line = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", *size, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(line, capture_output=True, check=True)


if __name__ == "__main__":
    main()

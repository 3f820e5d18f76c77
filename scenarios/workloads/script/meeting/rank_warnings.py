"""Shows a warning of the script once for all ranks, and counts the other ranks that give it."""

from __future__ import annotations

import hashlib
import sys
import warnings
from pathlib import Path
from typing import TextIO

_PREFIX = "warning-"


def show_once(folder: Path, rank: str) -> None:
    """Show only warnings that no other rank has shown; `folder` is that of all ranks, which keeps what they give."""
    show, own = warnings.showwarning, set[Path]()

    def show_unless_shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        words = f"{filename}:{lineno}: {category.__name__}: {message}"
        given = folder / f"{_PREFIX}{hashlib.sha256(words.encode(errors='replace')).hexdigest()}"
        try:
            given.mkdir()
            own.add(given)
            (given / "words").write_text(words.partition("\n")[0], encoding="utf-8", errors="replace")
        except FileExistsError:
            if given not in own:
                (given / rank).touch()
        except OSError:  # no room, or the simulator is gone
            own.add(given)
        if given in own:
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = show_unless_shown


def print_counts(folder: Path) -> None:
    """Print on stderr how many other ranks gave each warning, and forget them."""
    for given in sorted(folder.glob(f"{_PREFIX}*"), key=lambda given: given.stat().st_mtime):
        words, others = given / "words", [path for path in given.iterdir() if path.name != "words"]
        if others and words.exists():
            count = f"{len(others):,} other rank{'s' if len(others) > 1 else ''}"
            print(f"note: {words.read_text(encoding='utf-8')}: also given by {count}", file=sys.stderr)
        for path in given.iterdir():
            path.unlink()
        given.rmdir()

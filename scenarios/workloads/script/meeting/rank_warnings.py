"""Shows a warning of the script, or of torch's own log, once for all ranks, and counts the other ranks that give it."""

from __future__ import annotations

import hashlib
import logging
import sys
import warnings
from pathlib import Path
from typing import TextIO

from scenarios.progress_line import print_notes
from scenarios.workloads.script.users_lines import is_own_file, users_frame

_PREFIX = "warning-"
# Packages whose log is no output of the script's own.
_LIBRARIES = frozenset({"torch", "torchrec"})


def show_once(folder: Path, rank: str) -> None:
    """Show only warnings that no other rank has shown; `folder` is that of all ranks, which keeps what they give."""
    show, handle, own = warnings.showwarning, logging.Logger.handle, set[Path]()

    def is_shown(place: str, words: str) -> bool:
        digest = hashlib.sha256(f"{place}: {words}".encode(errors="replace")).hexdigest()
        given = folder / f"{_PREFIX}{digest}"
        try:
            given.mkdir()
            own.add(given)
            (given / "place").write_text(place, encoding="utf-8", errors="replace")
        except FileExistsError:
            if given not in own:
                (given / rank).touch()
        except OSError:  # no room, or the simulator is gone
            own.add(given)
        return given in own

    def show_unless_shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # torch names the caller of its function, which is a function that replaces torch's if the user calls that.
        if is_own_file(filename) and (users := users_frame(sys._getframe())) is not None:
            filename, lineno = users.f_code.co_filename, users.f_lineno
        if is_shown(f"{filename}:{lineno}: {category.__name__}", str(message)):
            show(message, category, filename, lineno, file, line)

    def handle_unless_shown(self: logging.Logger, record: logging.LogRecord) -> None:
        is_library = record.levelno == logging.WARNING and record.name.partition(".")[0] in _LIBRARIES
        if not is_library or is_shown(f"{record.pathname}:{record.lineno}: warning", record.getMessage()):
            handle(self, record)

    warnings.showwarning = show_unless_shown
    logging.Logger.handle = handle_unless_shown  # type: ignore[method-assign]


def print_counts(folder: Path) -> None:
    """Print on stderr how many other ranks gave each warning, and forget them."""
    for given in sorted(folder.glob(f"{_PREFIX}*"), key=lambda given: given.stat().st_mtime):
        place, others = given / "place", [path for path in given.iterdir() if path.name != "place"]
        if others and place.exists():
            count = f"{len(others):,} other rank{'s' if len(others) > 1 else ''}"
            print_notes([f"{place.read_text(encoding='utf-8')}: also given by {count}"])
        for path in given.iterdir():
            path.unlink()
        given.rmdir()

"""Notes and a progress line on stderr, and lines folded at the terminal's width, for all commands.

`rich` is loaded when a progress line first draws on a terminal.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


# Largest share shown: rich would end the task at 1.
_MOST = 0.9999
_BETWEEN_S = 0.25  # least time between two drawings
_LEAST_WIDTH = 40


def fold_paragraph(words: str, first: str = "", later: str | None = None) -> str:
    """Return a paragraph folded at the terminal's width, or at 80 columns in a pipe; no word, such as a path, is cut.

    Args:
        words: the paragraph.
        first: the indentation of its first line.
        later: that of the other lines, by default as wide as the first.
    """
    indent = " " * len(first) if later is None else later
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH)
    lines = textwrap.TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines.fill(line) if line else first.rstrip() for line in words.split("\n"))


def print_notes(sentences: Iterable[str]) -> None:
    """Print notes to stderr, each behind "note: ", its further lines indented as far."""
    for sentence in sentences:
        print(fold_paragraph(sentence, "note: "), file=sys.stderr)


class ProgressLine:
    """A line that is redrawn if stderr is a terminal, and removed at the end; elsewhere, lines of text if requested.

    Args:
        quiet: draw nothing.
        first_s: time before the first drawing, as most commands end sooner.
        ticks: also draw once a second, with the elapsed time, while the caller waits.
        plain_s: where stderr is no terminal, minimum time between two lines of text, and before the first.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        first_s: float = 0.0,
        ticks: bool = False,
        plain_s: float = math.inf,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ticks, self._now_s = ticks, now_s
        is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._plain_s = math.inf if is_terminal or sys.stderr is None else plain_s
        first_s = first_s if is_terminal else self._plain_s
        self._first_s = self._due_s = math.inf if quiet else now_s() + first_s
        self._progress: Progress | None = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Remove the line and stop drawing."""
        self._first_s = self._due_s = math.inf
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def is_due(self) -> bool:
        """Return whether it is time to draw, and restart the interval if so; costs one clock reading."""
        now_s = self._now_s()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + _BETWEEN_S
        return True

    def draw(self, words: str, share: float | None = None, more: str = "") -> None:
        """Draw the words, a bar of the share done (None: unknown), and `more` words, unless it is too early."""
        if self._now_s() < self._first_s:
            return
        if math.isfinite(self._plain_s):
            self._first_s = self._now_s() + self._plain_s
            done_share = [] if share is None else [f"{share:.0%}"]
            print(", ".join([words, *done_share, *filter(None, [more])]), file=sys.stderr, flush=True)
            return
        if self._progress is None:
            self._begin()
        assert self._progress is not None, "it was begun"
        # rich: a finished task keeps its elapsed time, and `update` cannot set an unknown total.
        self._progress.tasks[0].total = None if share is None else 1.0
        done = min(share or 0.0, _MOST)
        self._progress.update(self._task, description=words, completed=done, more=more, refresh=not self._ticks)

    def show(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Draw the current activity, and its progress."""
        self.draw(what, done / total if total else None)

    def _begin(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[more]}"))
        self._progress = Progress(
            *columns,
            *((TimeElapsedColumn(),) if self._ticks else ()),
            console=Console(stderr=True),
            auto_refresh=self._ticks,
            refresh_per_second=1,  # drawing takes time from the cores that ranks are measured on
            transient=True,
            redirect_stdout=False,
        )
        self._task = self._progress.add_task("", total=1.0, more="")
        self._progress.start()

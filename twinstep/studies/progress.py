"""Shows a sweep's progress on one line of stderr: points, their rate, what is left, the best so far."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinstep.progress import clock_text
from twinstep.studies.conditions import Bounds, violations
from twinstep.studies.goals import Goal, rating, told

if TYPE_CHECKING:
    from rich.progress import Progress

_BETWEEN_S = 0.25


class SweepBar:
    """A line where stderr is a terminal; nothing elsewhere, or if `quiet`."""

    def __init__(self, goal: Goal, *, quiet: bool, constraints: Mapping[str, Bounds] | None = None) -> None:
        self._goal, self._constraints = goal, constraints or {}
        is_seen = not quiet and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._due_s = 0.0 if is_seen else math.inf
        self._progress: Progress | None = None
        self._begin("", 0)

    def __enter__(self) -> SweepBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _begin(self, words: str, total: int) -> None:
        self._words, self._total, self._began_s = words, total, time.monotonic()
        self._ended = self._played = self._failed = 0
        self._best: tuple[float, int] = (math.inf, 0)

    def stage(self, words: str, total: int) -> None:
        """Another stage begins."""
        self._begin(words, total)

    def ended(self, row: Mapping[str, Any]) -> None:
        """A point has its row, of this command or of an earlier one."""
        self._ended += 1
        self._played += bool(row["played"])
        self._failed += row["status"] != "done"
        if row["status"] == "done" and not any(violations(row, self._constraints).values()):
            self._best = min(self._best, (rating(row, self._goal), row["index"]))

    def tick(self, workers: int) -> None:
        """Draw, if it is time."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + _BETWEEN_S
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[more]}"))
            self._progress = Progress(
                *columns, console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._task = self._progress.add_task("", total=1.0, more="")
            self._progress.start()
        share = self._ended / self._total if self._total else 0.0
        words = self.words(now_s - self._began_s, workers)
        self._progress.update(self._task, description=words[0], completed=share, more=words[1], refresh=True)

    def words(self, seconds: float, workers: int) -> tuple[str, str]:
        """What stands before and behind the bar."""
        rate = self._ended / seconds if seconds else 0.0
        left_s = (self._total - self._ended) / rate if rate else math.nan
        stage = f"{self._words}, " if self._words else ""
        parts = [f"{rate:.3g}/s, {clock_text(left_s)} left", f"{workers} worker{'' if workers == 1 else 's'}"]
        if self._best[0] < math.inf:
            parts.append(f"best {told(self._best[0], self._goal)} (#{self._best[1]})")
        if self._failed:
            parts.append(f"{self._failed:,} failed")
        return f"{stage}{self._ended:,} of {self._total:,} points", ", ".join(parts)

"""Shows a sweep's progress on one line of stderr: points, their rate, the time left, the best so far."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from scenarios.progress_line import ProgressLine
from twinstep.progress import clock_text
from twinstep.studies.conditions import Bounds, violations
from twinstep.studies.goals import Goal, rating, rating_text


class SweepBar:
    """A progress line where stderr is a terminal; nothing elsewhere, or if `quiet`."""

    def __init__(self, goal: Goal, *, quiet: bool, constraints: Mapping[str, Bounds] | None = None) -> None:
        self._goal, self._constraints = goal, constraints or {}
        self._line = ProgressLine(quiet=quiet)
        self.stage("", 0)

    def __enter__(self) -> SweepBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.end()

    def stage(self, words: str, total: int) -> None:
        """Begin another stage of `total` points."""
        self._words, self._total, self._began_s = words, total, time.monotonic()
        self._ended = self._failed = 0
        self._best: tuple[float, int] = (math.inf, 0)

    def count_ended(self, row: Mapping[str, Any]) -> None:
        """Count a point that has its row, from this command or an earlier one."""
        self._ended += 1
        self._failed += row["status"] != "done"
        if row["status"] == "done" and not any(violations(row, self._constraints).values()):
            self._best = min(self._best, (rating(row, self._goal), row["index"]))

    def tick(self, workers: int) -> None:
        """Draw the line, if it is time."""
        if self._line.is_due():
            words, more = self.words(time.monotonic() - self._began_s, workers)
            self._line.draw(words, self._ended / self._total if self._total else 0.0, more)

    def words(self, seconds: float, workers: int) -> tuple[str, str]:
        """Return the texts before and after the bar."""
        rate = self._ended / seconds if seconds else 0.0
        left_s = (self._total - self._ended) / rate if rate else math.nan
        stage = f"{self._words}, " if self._words else ""
        parts = [f"{rate:.3g}/s, {clock_text(left_s)} left", f"{workers} worker{'' if workers == 1 else 's'}"]
        if self._best[0] < math.inf:
            parts.append(f"best {rating_text(self._best[0], self._goal)} (#{self._best[1]})")
        if self._failed:
            parts.append(f"{self._failed:,} failed")
        return f"{stage}{self._ended:,} of {self._total:,} points", ", ".join(parts)

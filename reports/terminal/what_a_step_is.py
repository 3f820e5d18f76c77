"""A step's critical path as a bar of what it is, and whether compressing gradients could shorten it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from reports.analysis import by_what
from reports.analysis.by_what import REDUCTIONS
from reports.analysis.step_breakdown import steady_steps
from reports.run import Run
from reports.terminal import text
from scenarios.seam import roles
from scenarios.seam.traits import TRAITS

# A letter each: capitals are computed, small letters sent.
LETTERS = {
    **{by_what.DENSE: "D", by_what.LOOK_UPS: "L", by_what.TABLE_UPDATES: "U", by_what.OPTIMIZER: "O"},
    **{by_what.COMPRESSION: "C", by_what.PACKING: "P", by_what.INPUT: "I", by_what.OTHER: "X"},
    **{by_what.IDS: "i", by_what.EMBEDDINGS: "e", by_what.GRADIENTS: "g", by_what.EXCHANGES: "x", REDUCTIONS: "r"},
    **{by_what.TRANSFERS: "t", by_what.LAUNCHING: "=", by_what.WAITING: ".", by_what.HOST: "_"},
}
# What takes less of a step is not named by itself.
_LEAST_SHARE = 0.005
_NOTHING = 0.0005
_REST, _GAP = "the rest", "   "
_STAND_STILL = "waiting: the path is on a rank that computes while most others stand still for it"
# From here on the exposed transfer of gradients is worth compressing.
_WORTH = 0.02
# Gradients of tables that every rank has, and averages of replicas of tables, are not compressed.
_OF_TABLES = (roles.TABLE_REDUCTION, roles.REPLICAS)
_REDUCED = [verb for verb, known in TRAITS.items() if known.has_sums and known.size]


def bar(run: Run, step: int, of: str = "") -> RenderableType:
    """Return one line of letters, then what they stand for with shares, which add up to 100 %."""
    path = run.critical_path_of(step)
    parts = by_what.by_what(path)
    if not len(parts):
        return Group()
    whole = text.duration(float(parts["duration_ns"].sum()))
    named = parts[(parts["share"] >= _LEAST_SHARE).to_numpy(bool)]
    said = [f"{LETTERS[name]} {words}" for name, words in zip(named["what"], shares_said(named), strict=True)]
    rest = float(parts["share"].sum() - named["share"].sum())
    said += [f"{_REST} {text.percent(rest)}"] if rest >= _NOTHING else []
    title = f"Critical path of step {step}{of} by what it is, {whole}"
    note = _STAND_STILL if by_what.WAITING in named["what"].tolist() else ""
    return Group(Text(title, style="bold"), _Bar(parts["what"].tolist(), parts["share"].to_numpy(float), said, note))


@dataclass(frozen=True, slots=True)
class _Bar:
    """A line of letters as wide as there is room, and below it what they stand for."""

    whats: Sequence[str]
    shares: np.ndarray
    said: Sequence[str]
    note: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = min(options.max_width, text.WIDTH)
        cells = _cells(self.shares, room)
        yield Text("".join(LETTERS[name] * count for name, count in zip(self.whats, cells, strict=True)))
        yield text.paragraph("\n".join([*_lines(self.said, room), *filter(None, [self.note])]))


def _lines(said: Sequence[str], room: int) -> list[str]:
    """Return as few lines as hold these; a letter stays beside its name."""
    lines: list[str] = []
    for words in said:
        joined = f"{lines[-1]}{_GAP}{words}" if lines else words
        lines[-1:] = [joined] if len(joined) <= room else [*lines[-1:], words]
    return lines


def shares_said(parts: pd.DataFrame) -> list[str]:
    """Each row of `by_what` in words: "dense 81.6 %"."""
    return [f"{name} {text.percent(share)}" for name, share in zip(parts["what"], parts["share"], strict=True)]


def _cells(shares: np.ndarray, width: int) -> list[int]:
    """So many letters in all, each share's number as close to it as whole numbers are."""
    ends = np.round(np.cumsum(shares) * width).astype(int)
    found: list[int] = np.diff(ends, prepend=0).tolist()
    return found


def gradients_hidden(run: Run, steps: list[int]) -> str:
    """Why compressing gradients cannot help, in a sentence without a full stop; "" where it might, or none are reduced.

    Of the mean rank: what of the reduction of dense gradients is neither hidden behind its computation nor waiting for
    others. "" also where they are compressed already.
    """
    compression = run.info.scenario.get("compression")
    if isinstance(compression, dict) and compression.get("kind") != "none":
        return ""
    frame = run.operations_of(steps)
    reduced = frame[frame["kind"].isin(_REDUCED).to_numpy(bool) & ~frame["role"].isin(_OF_TABLES).to_numpy(bool)]
    reduced = reduced[np.equal(by_what.whats(reduced.assign(kernel="")), REDUCTIONS).astype(bool)]
    total, hidden, wait = (float(reduced[name].sum()) for name in ("mean_ns", "hidden_ns", "wait_ns"))
    step_ns = float(steady_steps(run.steps)["step_ns"].median())
    share = (total - hidden - wait) / step_ns if step_ns > 0 else 1.0
    if not total > 0 or share >= _WORTH:
        return ""
    waits = f", {text.percent(wait / total)} is waiting for other ranks" if wait >= _LEAST_SHARE * total else ""
    left = f"the transfer that is left is {text.percent(share)} of the step" if share >= _NOTHING else "nothing is left"
    can = "cannot" if share < _LEAST_SHARE else "can hardly"
    return (
        f"compressing gradients {can} help: {text.percent(hidden / total)} of their reduction is hidden behind"
        f" computation{waits}; {left}"
    )

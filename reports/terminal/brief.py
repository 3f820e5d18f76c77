"""One run in a few lines or a small HTML table, as a Python session and a notebook show it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from reports.analysis.step_breakdown import PARTS, parts_of_step, typical_step
from reports.errors import ReportError
from reports.run import Run
from reports.terminal import text
from reports.terminal.headline import headline
from reports.terminal.rows import operation_name, records

_LONGEST_SHOWN = 3
_LEAST_SHARE = 0.005
# These lie within others.
_WITHIN = {PARTS["communication_ns"], PARTS["hidden_ns"]}


class Share(NamedTuple):
    """What takes so much of a step."""

    name: str
    ns: float
    share: float

    def __str__(self) -> str:
        return f"{text.printable(self.name)} {text.percent(self.share)}"


def as_text(run: Run) -> str:
    """Step time, ranks and what dominates, a line each; never an error."""
    head, *lines = _head(run)
    lines += [f"{name}: {', '.join(map(str, shares))}" for name, shares in _dominant(run).items()]
    return "\n  ".join([f"<Run {head}", *lines]) + ">"


def as_html(run: Run) -> str:
    """The same as an HTML fragment without scripts and styles of its own."""
    head, *lines = map(escape, _head(run))
    rows = "".join(
        f'<tr><th colspan="3" style="text-align: left">{escape(name)}</th></tr>{"".join(map(_row, shares))}'
        for name, shares in _dominant(run).items()
    )
    return f"<div><strong>{head}</strong><br>{'<br>'.join(lines)}<table>{rows}</table></div>"


def _row(one: Share) -> str:
    cells = text.printable(one.name), text.duration(one.ns), text.percent(one.share)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _head(run: Run) -> list[str]:
    try:
        lines = headline(run)
    except ReportError as error:  # spans are read only now
        return [f"{run.info.name}: {error}"]
    return [text.printable(line) for line in lines] + ([] if len(run.steps) else ["no rank ended a step"])


def _dominant(run: Run) -> dict[str, list[Share]]:
    """By title, the parts of the typical step and what its critical path holds most of; largest first."""
    try:
        if (step := typical_step(run)) is None:
            return {}
        parts, path = parts_of_step(run, [step]), run.waited_for_of(step)
    except ReportError:  # said above
        return {}
    spent = [Share(*row) for row in parts[["part", "mean_ns", "share"]].itertuples(index=False, name=None)]
    waited = [Share(operation_name(row), row["duration_ns"], row["share"]) for row in records(path)]
    found = {
        f"mean over ranks in step {step}": _largest(one for one in spent if one.name not in _WITHIN),
        f"critical path of step {step}": _largest(waited)[:_LONGEST_SHOWN],
    }
    return {title: shares for title, shares in found.items() if shares}


def _largest(shares: Iterable[Share]) -> list[Share]:
    return sorted((one for one in shares if one.share >= _LEAST_SHARE), key=lambda one: -one.share)

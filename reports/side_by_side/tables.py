"""Tables that compare several runs, for the terminal and for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rich.console import Group, RenderableType

from reports.analysis.step_breakdown import ADDING_UP
from reports.sections.run.headline import folded, of_recording, thinned, warm_up
from reports.side_by_side.frames import CHANGES, SideBySide
from reports.side_by_side.words import (
    DIFFERENT_BATCHES,
    NUMBERS,
    about_run,
    exposed_shown,
    marks,
    medians_shown,
    more,
    no_operations,
    numbers,
    operations_by_change,
    placement,
    sentences,
    settings_shown,
)
from reports.terminal import text
from reports.terminal.rows import records, written

# Up to this many runs have columns of their own; more runs are rows.
_COLUMNS = 4
_ROWS = 16
# The least visible width of a setting's name.
_KEY = 32


def summarize(found: SideBySide) -> RenderableType:
    """Return differing settings, then step time and its parts, operations and the plan."""
    sections = [_headline(found), _settings(found), *_results(found), _operations(found), _plans(found)]
    return Group(*sections)


@text.json_ready
def as_json(found: SideBySide) -> dict[str, Any]:
    """Return the whole frames as JSON-ready values: a list of rows each."""
    head = {
        "base": found.names[0],
        "runs": found.names,
        "same_settings": found.same_settings,
        "same_tables": found.same_tables,
    }
    return {**head, **{name: records(frame) for name, frame in found.frames().items()}}


def _headline(found: SideBySide) -> RenderableType:
    short = marks(found.names)
    lines = [f"{text.counted(len(short), 'run')} side by side, relative to the first:"]
    for mark, (name, run) in zip(short, found.runs, strict=True):
        own = name if mark == name else f"{mark}  {name}"
        of_run = (folded(run.info), thinned(run.info), warm_up(run), of_recording(run))
        notes = "".join(f"; {words}" for words in of_run if words)
        lines.append(f"{own}: {about_run(run.info)}{notes}")
    said = [*sentences(found), *([f"{DIFFERENT_BATCHES}."] if found.batches_differ else [])]
    return Group(text.paragraph("\n".join(lines), style="bold"), text.paragraph("\n".join(said)))


def _settings(found: SideBySide) -> RenderableType:
    alike = f"{found.same_settings:,} identical"
    rows, short = settings_shown(found), marks(found.names)
    if not rows:
        return text.paragraph(f"Settings: no differences; {alike}.")
    title = f"Settings that differ; {alike}{_left_out(len(rows))}"
    if len(short) <= _COLUMNS:
        return text.table(title, ["setting", *short], rows[:_ROWS], left=1 + len(short), kept=[_KEY, *[9] * len(short)])
    long = [[key, value, who] for key, *values in rows[:_ROWS] for value, who in _who(values, short).items()]
    return text.table(title, ["setting", "value", "runs"], long, left=3)


def _who(values: list[str], short: list[str]) -> dict[str, str]:
    """Return the runs of each value."""
    found: dict[str, list[str]] = {}
    for value, mark in zip(values, short, strict=True):
        found.setdefault(value, []).append(mark)
    return {value: ", ".join(runs) for value, runs in found.items()}


def _left_out(count: int) -> str:
    return f"; {count - _ROWS} more not shown" if count > _ROWS else ""


def _results(found: SideBySide) -> Iterator[RenderableType]:
    frame, short = found.results, marks(found.names)
    title = "Step time, median of steady steps, and breakdown, means over ranks"
    if len(short) > _COLUMNS:
        first = "samples_per_s" if found.batches_differ else "step_ns"
        rows = [[short[at], *_of_run(row, [first, *ADDING_UP])] for at, row in enumerate(records(frame))]
        columns = ["run", NUMBERS[first], "change", "compute", "transfer", "waiting", "idle", "skew"]
        yield text.table(title, columns, rows)
        return
    shown = numbers(found)
    kept = {name: frame[name].tolist() for name in shown if frame[name].notna().any()}
    values = {name: [written(name, value) for value in each] for name, each in kept.items()}
    changes = {name: [text.signed_percent(one) for one in frame[CHANGES[name]].tolist()[1:]] for name in kept}
    if len(short) == 2:
        rows = [[shown[name], *values[name], *changes[name]] for name in kept]
        yield text.table(title, ["", *short, "change"], rows)
        return
    yield text.table(title, ["", *short], [[shown[name], *values[name]] for name in kept])
    if len(short) > 1:
        title = f"The same, changes against {short[0]}"
        yield text.table(title, ["", *short[1:]], [[shown[name], *changes[name]] for name in kept])


def _of_run(row: dict[str, Any], names: list[str]) -> list[str]:
    first, *others = (written(name, row[name]) for name in names)
    return [first, text.signed_percent(row[CHANGES[names[0]]]), *others]


def _operations(found: SideBySide) -> RenderableType:
    held = list(dict.fromkeys(found.operations["run"].tolist()))
    short = [mark for mark, name in zip(marks(found.names), found.names, strict=True) if name in held]
    if not held:
        return text.paragraph(f"Operations: {no_operations(found)}")
    count = len(found.operations) // len(held)
    batches = "; batches differ" if found.batches_differ else ""
    title = f"Operations per rank and step, by change{batches}{_left_out(count)}"
    rows, columns = [], ["operation", short[0], *(f"{mark} - {short[0]}" for mark in short[1:])]
    for name, frame in islice(operations_by_change(found), _ROWS):
        medians, changes = medians_shown(frame), frame["change_ns"].tolist()
        if len(short) == 2:
            columns = ["operation", *short, "change", "transfer", "waiting"]
            rows.append([name, *medians, more(changes[1]), *exposed_shown(frame)[1]])
        elif len(short) <= _COLUMNS:
            rows.append([name, medians[0], *map(more, changes[1:])])
        else:
            columns = ["operation", short[0], "largest change", "in"]
            at = max(range(len(changes)), key=lambda place: abs(changes[place]))
            rows.append([name, medians[0], more(changes[at]), short[at]])
    return text.table(title, columns, rows)


def _plans(found: SideBySide) -> RenderableType:
    alike = f"{found.same_tables:,} placed identically"
    frame, short = found.plans, dict(zip(found.names, marks(found.names), strict=True))
    if not len(frame):
        planned = sum(len(run.plan) > 0 for _, run in found.runs)
        return text.paragraph(
            f"Plan: no differences; {alike}." if planned > 1 else "Plan: fewer than two runs have one."
        )
    frame = frame.assign(place=[placement(row["sharding_type"], row["ranks"]) for row in records(frame)])
    each = list(frame.groupby("table", sort=False))
    title = f"Tables placed differently; {alike}{_left_out(len(each))}"
    held = [short[name] for name in each[0][1]["run"]]
    if len(held) > _COLUMNS:
        rows = [
            [str(table), place, who]
            for table, own in each[:_ROWS]
            for place, who in _who(own["place"].tolist(), held).items()
        ]
        return text.table(title, ["table", "placed", "runs"], rows, left=3)
    rows = [[str(table), *own["place"].tolist()] for table, own in each[:_ROWS]]
    return text.table(title, ["table", *held], rows, left=1 + len(held))

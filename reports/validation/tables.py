"""Tables of validations, for the terminal and for scripts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType

from reports.analysis import statistics
from reports.analysis.repeats import Plays
from reports.terminal import text
from reports.terminal.rows import cells, named, records
from reports.validation.validation import Validation, errors_of

# The number of scenarios, those with the greatest errors, whose operations are shown.
_EXPLAINED = 3
_OPERATIONS = 6
_TIMES = ("median", "low", "high")
_TITLE = "Step times (median, p10 to p90)"
_COLUMNS = ["scenario", "predicted", "p10-p90", "measured", "p10-p90", "error", "inside"]


def summarize(validations: Sequence[Validation], precision: float, max_error: float | None) -> RenderableType:
    """Return a row per scenario, notes on each, operations of the greatest errors, and a summary of all errors."""
    rows = [(one.name, _times(one.predicted), _times(one.measured), one.error, one.inside) for one in validations]
    parts = [_table(rows)]
    notes = [note for one in validations for note in _notes(one, precision)]
    single = [one for one in validations if one.predicted is not None and len(one.predicted.each) == 1]
    if single:
        notes.append(
            f"Draws of {text.counted(len(single), 'scenario')} do not vary: the predicted interval is only that"
            " of differences between steps, too narrow to hold a measurement"
        )
    if notes:
        parts.append(text.paragraph("\n".join(notes)))
    known = [one for one in validations if not math.isnan(one.error)]
    parts += [_explained(one) for one in sorted(known, key=lambda one: -abs(one.error))[:_EXPLAINED]]
    parts.append(text.paragraph("\n".join(_verdict(known, len(validations), max_error)), style="bold"))
    return Group(*parts)


def of_scenarios(scenarios: pd.DataFrame) -> RenderableType:
    """Return the table of the scenarios that `validation_folder` has read, and a summary of all errors."""
    rows = []
    for row in records(scenarios):
        sides = [[row[f"{side}_{name}_ns"] for name in _TIMES] for side in ("predicted", "measured")]
        rows.append((row["scenario"], *sides, row["error"], None if math.isnan(row["error"]) else row["inside"]))
    found = statistics.errors(scenarios["error"].dropna().tolist())
    short = f"Median error {text.percent(found.median)}, worst {text.signed_percent(found.worst)}."
    return Group(_table(rows), text.paragraph(short, style="bold"))


def _table(rows: Iterable[tuple[str, Sequence[float], Sequence[float], float, bool | None]]) -> RenderableType:
    """Return a table from rows of name, median, p10 and p90 of both sides, error, and whether the median is inside."""
    shown = []
    for name, predicted, measured, error, inside in rows:
        sides = [[text.duration(median), between(low, high)] for median, low, high in (predicted, measured)]
        word = {None: "-", True: "yes", False: "no"}[inside]
        shown.append([name, *sides[0], *sides[1], text.signed_percent(error), word])
    return text.table(_TITLE, _COLUMNS, shown)


def _times(plays: Plays | None) -> list[float]:
    return [math.nan] * 3 if plays is None else [getattr(plays.sample, name) for name in _TIMES]


@text.json_ready
def as_json(validations: Sequence[Validation]) -> dict[str, Any]:
    """Return all validations, whole, as JSON-ready values."""
    return {
        "errors": dataclasses.asdict(errors_of(validations)),
        "scenarios": [
            {
                **_head(one),
                "predicted": _side(one.predicted, "draw"),
                "measured": _side(one.measured, "round"),
                **_outcome(one),
                "operations": records(one.operations),
            }
            for one in validations
        ],
    }


def frame(validations: Sequence[Validation]) -> pd.DataFrame:
    """Return one row per scenario, for a file: as objects, so that integers stay integers next to nan."""
    rows = []
    for one in validations:
        row = _head(one)
        for side, plays, play in (("predicted", one.predicted, "draw"), ("measured", one.measured, "round")):
            values = {key: value for key, value in (_side(plays, play) or {}).items() if not isinstance(value, list)}
            row |= {f"{side}_{key}": value for key, value in values.items()}
        rows.append({**row, **_outcome(one)})
    return pd.DataFrame(rows, dtype=object)


def operations_frame(validations: Sequence[Validation]) -> pd.DataFrame:
    """Return one row for each scenario and operation."""
    each = [one.operations for one in validations]
    both = pd.concat(each, ignore_index=True)
    both.insert(
        0, "scenario", [one.name for one, rows in zip(validations, each, strict=True) for _ in range(len(rows))]
    )
    return both


def spread_line(plays: Plays) -> str:
    """Return median and p10-p90 of a prediction's draws, in one line."""
    sample = plays.sample
    if len(plays.each) == 1:
        of = "in every draw, as nothing varies between them"
    else:
        of = f"over {text.counted(len(plays.each), 'draw')}"
    where = between(sample.low, sample.high)
    lie = f"within {where}" if "-" in where else f"at {where}"
    return f"median {text.duration(sample.median)}, 80 % of steps {lie}, {of}"


def spread_json(plays: Plays) -> dict[str, Any]:
    """Return the median and p10-p90 of a prediction's draws for scripts."""
    sample = plays.sample
    return {
        "draws": len(plays.each),
        "interval_median_ns": sample.median,
        "interval_ns": [sample.low, sample.high],
    }


def between(low: float, high: float) -> str:
    """Return "7.90-8.41 ms"; with two units where they differ."""
    first, second = text.duration(low), text.duration(high)
    if first == second:
        return first
    number, _, unit = first.rpartition(" ")
    return f"{number}-{second}" if second.endswith(f" {unit}") else f"{first}-{second}"


def _head(one: Validation) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("name", "file", "digest", "library", "world_size", "steps")}


def _side(plays: Plays | None, play: str) -> dict[str, Any] | None:
    if plays is None:
        return None
    sample = plays.sample
    return {
        **{f"{name}_ns": getattr(sample, name) for name in ("median", "median_low", "median_high", "low", "high")},
        **{name: getattr(sample, name) for name in ("spread", "uncertainty")},
        "disagreement": plays.disagreement,
        "steps": sample.count,
        f"{play}s": len(plays.each),
        f"{play}_medians_ns": plays.medians_ns,
        f"{play}_steps_ns": [list(one.step_ns) for one in plays.each],
    }


def _outcome(one: Validation) -> dict[str, Any]:
    names = ("error", "error_low", "error_high", "inside", "is_too_noisy", "ended")
    return {name: getattr(one, name) for name in names}


def _notes(one: Validation, precision: float) -> Iterator[str]:
    if one.ended:
        yield f"{one.name}: ENDED EARLY: {one.ended}"
    if one.is_too_noisy and one.measured is not None:
        yield f"{one.name}: TOO NOISY: {noise(one.measured, precision)}"


def noise(plays: Plays, precision: float) -> str:
    """Return why a measured median is not known as precisely as requested."""
    sample, rounds = plays.sample, text.counted(len(plays.each), "round")
    known = text.counted(sample.count, "step")
    if not math.isnan(sample.uncertainty):
        known = f"median known to ±{text.percent(sample.uncertainty)}"
    lie = ""
    if len(plays.each) > 1:
        lie = f", whose own medians are {between(min(plays.medians_ns), max(plays.medians_ns))}"
    return f"{known} after {rounds}{lie}; asked for ±{text.percent(precision)}"


def _explained(one: Validation) -> RenderableType:
    kept = one.operations.head(_OPERATIONS)
    rows = cells(named(kept), ["name", "kind", "predicted_ns", "measured_ns", "error", "error_of_step"])
    columns = ["operation", "kind", "predicted", "measured", "error", "of the step"]
    more = f"; {len(one.operations) - len(kept)} others not shown" if len(one.operations) > len(kept) else ""
    return text.table(f"{one.name}: where operations differ most{more}", columns, rows, left=2)


def _verdict(known: Sequence[Validation], count: int, max_error: float | None) -> Iterator[str]:
    if not known:
        yield f"Errors: none of {text.counted(count, 'scenario')} was compared."
        return
    errors = errors_of(known)
    worst = max(known, key=lambda one: abs(one.error))
    yield (
        f"Errors of {text.counted(len(known), 'scenario')}: median {text.signed_percent(errors.signed_median)};"
        f" sizes: median {text.percent(errors.median)}, 95th percentile {text.percent(errors.p95)};"
        f" worst {text.signed_percent(errors.worst)} ({worst.name})"
    )
    if max_error is not None:
        past = [one.name for one in known if one.is_past(max_error)]
        yield f"Past {text.percent(max_error)}: {', '.join(past) or 'none'}"

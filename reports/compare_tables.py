"""The comparison of two runs for the terminal and for scripts; the numbers are left to `compare`."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.console import Group, RenderableType

from reports import text
from reports.compare import Check, Comparison, typical_and_worst
from reports.tables import folded, records, thinned

_ROWS = 20
_DIFFERENCES = 3
_WORLDS = {"sim": "simulated", "real": "real"}


def summarize(comparison: Comparison) -> RenderableType:
    """Errors by step and operation, then the checks; 80 columns wide."""
    return Group(_headline(comparison), _steps(comparison), _operations(comparison), *map(_check, comparison.checks))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The same frames, whole, as JSON-ready values."""
    plain = text.plain(
        {
            "name": comparison.measured.info.name,
            "worlds": [comparison.predicted.info.world, comparison.measured.info.world],
            "digest": comparison.measured.info.digest,
            "steps": {**_errors(comparison.steps), "rows": records(comparison.steps)},
            "operations": {**_errors(comparison.operations), "rows": records(comparison.operations)},
            "checks": [
                {
                    "name": check.name,
                    "agrees": check.agrees,
                    "compared": check.compared,
                    "worst": check.worst,
                    "reason": check.reason,
                    "differences": records(check.differences),
                }
                for check in comparison.checks
            ],
        }
    )
    assert isinstance(plain, dict)
    return plain


def _errors(frame: pd.DataFrame) -> dict[str, float]:
    median, worst = typical_and_worst(frame)
    return {"median_absolute_error": median, "worst_error": worst}


def _headline(comparison: Comparison) -> RenderableType:
    sides = (("predicted", comparison.predicted), ("measured", comparison.measured))
    lines = [f"{comparison.measured.info.name}: {text.counted(comparison.measured.info.world_size, 'rank')}"]
    for role, run in sides:
        world = _WORLDS.get(run.info.world, run.info.world)
        early = "" if run.info.complete else f"; ENDED EARLY: {run.info.error or 'no reason was kept'}"
        early += "".join(f"; {words}" for words in (folded(run.info), thinned(run.info)) if words)
        lines.append(f"{role}: {world} run of {run.info.started or 'an unknown time'}{early}")
    residual_ns = comparison.measured.info.clock_residual_ns
    if residual_ns:
        lines.append(f"clocks of the measured hosts agree within {text.duration(residual_ns)}")
    return text.paragraph("\n".join(lines), style="bold")


def _about(frame: pd.DataFrame) -> str:
    median, worst = typical_and_worst(frame)
    return f"median error {text.percent(median)}, worst {text.signed_percent(worst)}"


def _steps(comparison: Comparison) -> RenderableType:
    frame = comparison.steps
    if not len(frame):
        return text.paragraph("Steps: neither run completed one.")
    kept = frame if len(frame) <= _ROWS else frame.loc[frame["error"].abs().nlargest(_ROWS).index].sort_values("step")
    more = "" if len(kept) == len(frame) else f"; the worst {_ROWS} of {len(frame)}"
    rows = [[str(row["step"]), *_times(row)] for row in records(kept)]
    title = f"Steps: {_about(frame)}{more}"
    return text.table(title, ["step", "predicted", "measured", "error"], rows)


def _operations(comparison: Comparison) -> RenderableType:
    frame = comparison.operations
    if not len(frame):
        return text.paragraph("Operations: none in either run.")
    kept = frame.head(_ROWS)
    more = "" if len(kept) == len(frame) else f"; the longest {_ROWS} of {len(frame)}"
    rows = [[_name(row), str(row["kind"]) if row["label"] else "", *_times(row)] for row in records(kept)]
    title = f"Operations, one rank in one step: {_about(frame)}{more}"
    return text.table(title, ["operation", "kind", "predicted", "measured", "error"], rows, left=2)


def _name(row: dict[str, Any]) -> str:
    name = str(row["label"] or row["kind"])
    return name if row["stream"] == "main" else f"{name} @{row['stream']}"


def _times(row: dict[str, Any]) -> list[str]:
    times = [text.duration(row["predicted_ns"]), text.duration(row["measured_ns"])]
    return [*times, text.signed_percent(row["error"])]


def _check(check: Check) -> RenderableType:
    if not check.compared:
        return text.paragraph(f"Not checked: {check.name}: {check.reason}.")
    if check.agrees:
        worst = f"; greatest difference {check.worst:.2g} of the value" if check.worst else ""
        return text.paragraph(f"Same {check.name}: all {check.compared:,} compared{worst}.")
    count = len(check.differences)
    if check.reason:
        these = f"{check.name[0].upper()}{check.name[1:]}: {count:,} of {check.compared:,} compared"
        return text.paragraph(f"{these} differ, by {text.percent(check.worst)} at most, as {check.reason}.")
    lines = [f"DIFFERENT {check.name}: {count:,} of {check.compared:,} compared, first:"]
    lines += [f"  {_difference(row)}" for row in records(check.differences.head(_DIFFERENCES))]
    return text.paragraph("\n".join(lines))


def _difference(row: dict[str, Any]) -> str:
    where = [f"rank {row['rank']}"] + ([f"step {row['step']}"] if "step" in row else [])
    if "position" in row:
        return (
            f"{where[0]}, stream {row['stream']}, operation {row['position']}: {row['predicted']} and {row['measured']}"
        )
    if "name" in row:
        return f"{', '.join(where)}, {row['name']}: {row['predicted']:.9g} and {row['measured']:.9g}"
    unlike = [
        f"{column} {row[f'predicted_{column}']:,.0f} and {row[f'measured_{column}']:,.0f}"
        for column in ("bytes_in", "bytes_out", "bytes_sent")
        if row[f"predicted_{column}"] != row[f"measured_{column}"]
    ]
    return f"{', '.join([*where, _name(row)])}: {', '.join(unlike)}"

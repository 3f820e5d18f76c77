"""Tables of a comparison of two runs, for the terminal and for scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from reports.compare.checks import WORLDS, Check
from reports.compare.comparison import Comparison, typical_and_worst
from reports.compare.errors_by_size import errors_by_size
from reports.terminal import text
from reports.terminal.headline import folded, thinned
from reports.terminal.rows import operation_name, records

_ROWS = 20
_DIFFERENCES = 3
_WORST = 8
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def summarize(comparison: Comparison) -> RenderableType:
    """Errors by step, operation and size, the worst cases, then the checks; 80 columns wide."""
    errors = (_steps(comparison), _operations(comparison), _sizes(comparison), _worst(comparison))
    return Group(_headline(comparison), *errors, *map(_check, comparison.checks))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The same frames, whole, as JSON-ready values."""
    plain = text.plain(
        {
            "name": comparison.measured.info.name,
            "worlds": [comparison.predicted.info.world, comparison.measured.info.world],
            "digest": comparison.measured.info.digest,
            "steps": {**_errors(comparison.steps), "rows": records(comparison.steps)},
            "operations": {**_errors(comparison.operations), "rows": records(comparison.operations)},
            "calls": {**_errors(comparison.calls), "rows": records(comparison.calls)},
            "errors_by_size": records(comparison.errors_by_size),
            "worst": records(comparison.worst),
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
    return text.paragraph("\n".join(about(comparison)), style="bold")


def about(comparison: Comparison) -> list[str]:
    """Which runs they are, in a few lines."""
    sides = (("predicted", comparison.predicted), ("measured", comparison.measured))
    lines = [f"{comparison.measured.info.name}: {text.counted(comparison.measured.info.world_size, 'rank')}"]
    for role, run in sides:
        world = WORLDS.get(run.info.world, run.info.world)
        early = "" if run.info.complete else f"; ENDED EARLY: {run.info.error or 'no reason was kept'}"
        early += "".join(f"; {words}" for words in (folded(run.info), thinned(run.info)) if words)
        lines.append(f"{role}: {world} run of {run.info.started or 'an unknown time'}{early}")
    residual_ns = comparison.measured.info.clock_residual_ns
    if residual_ns:
        lines.append(f"clocks of the measured hosts agree within {text.duration(residual_ns)}")
    return lines


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
    rows = [[operation_name(row), str(row["kind"]) if row["label"] else "", *_times(row)] for row in records(kept)]
    title = f"Operations per rank and step: {_about(frame)}{more}"
    return text.table(title, ["operation", "kind", "predicted", "measured", "error"], rows, left=2)


def _sizes(comparison: Comparison) -> RenderableType:
    frame = errors_by_size(classes(comparison.calls), by="part")
    if not len(frame):
        return text.paragraph("By size: no operation is in both runs.")
    rows = [
        [
            "computation" if row["part"] == "compute" else str(row["part"]),
            size_range(row["size_from_bytes"], row["size_until_bytes"]),
            f"{row['rows']:,}",
            text.signed_percent(row["signed_median"]),
            text.percent(row["median"]),
            text.signed_percent(row["worst"]),
        ]
        for row in records(frame)
    ]
    columns = ["part", "size of a call", "rows", "signed median", "median", "worst"]
    return text.table("Errors by size: what one call sends, one computation reads and writes", columns, rows, left=2)


def classes(calls: pd.DataFrame) -> pd.DataFrame:
    """`call_errors` with sizes in classes a factor of 16 wide; 0 bytes stay by themselves."""
    start = calls["size_from_bytes"].to_numpy(float)
    exponent = (np.log2(np.maximum(start, 1)) // 4 * 4).astype(np.int64)
    none = start == 0
    return calls.assign(
        size_from_bytes=np.where(none, 0, 1 << exponent), size_until_bytes=np.where(none, 1, 1 << (exponent + 4))
    )


def size_range(from_bytes: int, until_bytes: int) -> str:
    """ "4-64 KiB", "256 B-4 KiB", "0 B"; the upper end is not in it."""
    if not from_bytes:
        return "0 B"
    (first, unit), (last, last_unit) = (_power_of_two(value) for value in (from_bytes, until_bytes))
    return f"{first}-{last} {unit}" if unit == last_unit else f"{first} {unit}-{last} {last_unit}"


def size_of_power(size_bytes: int) -> str:
    """ "4 KiB" for 4,096, a power of two."""
    return " ".join(map(str, _power_of_two(size_bytes)))


def _power_of_two(size_bytes: int) -> tuple[int, str]:
    place = min((size_bytes.bit_length() - 1) // 10, len(_UNITS) - 1)
    return size_bytes >> (10 * place), _UNITS[place]


def _worst(comparison: Comparison) -> RenderableType:
    frame = comparison.worst
    if not len(frame):
        return text.paragraph("Worst cases: the runs have no operation of a rank and step in common.")
    kept = frame.head(_WORST)
    rows = [
        [
            operation_name(row),
            str(row["rank"]),
            str(row["step"]),
            *_times(row),
            text.signed_percent(row["error_of_step"]),
        ]
        for row in records(kept)
    ]
    more = f"; the first {_WORST} of {len(frame)}" if len(kept) < len(frame) else ""
    columns = ["operation", "rank", "step", "predicted", "measured", "error", "of the step"]
    return text.table(f"Largest single differences{more}", columns, rows)


def _times(row: dict[str, Any]) -> list[str]:
    times = [text.duration(row["predicted_ns"]), text.duration(row["measured_ns"])]
    return [*times, text.signed_percent(row["error"])]


def _check(check: Check) -> RenderableType:
    lines = [sentence(check)]
    if not check.reason:
        lines += [f"  {difference(row)}" for row in records(check.differences.head(_DIFFERENCES))]
    return text.paragraph("\n".join(lines))


def sentence(check: Check) -> str:
    """What a check found; differences that have no known reason are in capitals."""
    if not check.compared:
        return f"Not checked: {check.name}: {check.reason}."
    if check.agrees:
        worst = f"; greatest difference {check.worst:.2g} of the value" if check.worst else ""
        return f"Same {check.name}: all {check.compared:,} compared{worst}."
    count = f"{check.name}: {len(check.differences):,} of {check.compared:,} compared"
    why = f", by {text.percent(check.worst)} at most, as {check.reason}" if check.reason else ""
    return f"{'Different' if why else 'DIFFERENT'} {count}{why}."


def difference(row: dict[str, Any]) -> str:
    """One place where the runs do not agree, in a line."""
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
    return f"{', '.join([*where, operation_name(row)])}: {', '.join(unlike)}"

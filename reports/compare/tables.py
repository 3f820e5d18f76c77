"""Tables of a comparison of two runs, for the terminal and for scripts."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from reports.compare.calls import errors_by_size
from reports.compare.checks import WORLDS, Check
from reports.run import Run
from reports.sections.run.headline import folded, of_recording, rests_on, thinned, warm_up
from reports.terminal import text
from reports.terminal.rows import cells, named, operation_name, records

_ROWS = 20
_DIFFERENCES = 3
_WORST = 8
TIMES, TIMES_COLUMNS = ["predicted_ns", "measured_ns", "error"], ["predicted", "measured", "error"]
# Of a frame of `errors_by_size`.
SIZE_ERRORS = ["rows", "signed_median", "median", "worst"]
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Compared(Protocol):
    """A comparison, as far as tables show it; `reports.compare.comparison` has its fields' meanings."""

    @property
    def predicted(self) -> Run: ...
    @property
    def measured(self) -> Run: ...
    @property
    def operations(self) -> pd.DataFrame: ...
    @property
    def steps(self) -> pd.DataFrame: ...
    @property
    def calls(self) -> pd.DataFrame: ...
    @property
    def worst(self) -> pd.DataFrame: ...
    @property
    def checks(self) -> tuple[Check, ...]: ...
    def frames(self) -> dict[str, pd.DataFrame]: ...


def typical_and_worst(errors: pd.DataFrame) -> tuple[float, float]:
    """The median of the errors' sizes, and the error of greatest size with its sign; nan and nan without any."""
    known = errors["error"].dropna().to_numpy(float)
    if not len(known):
        return float("nan"), float("nan")
    return float(np.median(np.abs(known))), float(known[np.abs(known).argmax()])


def summarize(comparison: Compared) -> RenderableType:
    """Errors by step, operation and size, the worst cases, then the checks."""
    errors = (_steps(comparison), _operations(comparison), _sizes(comparison), _worst(comparison))
    return Group(text.paragraph("\n".join(about(comparison)), style="bold"), *errors, *map(_check, comparison.checks))


@text.json_ready
def as_json(comparison: Compared) -> dict[str, Any]:
    """Return the comparison's frames, whole, as JSON-ready values."""
    frames = comparison.frames()
    return {
        "name": comparison.measured.info.name,
        "worlds": [comparison.predicted.info.world, comparison.measured.info.world],
        "digest": comparison.measured.info.digest,
        "warm_up": comparison.measured.warm_up,
        **{name: {**_errors(frames[name]), "rows": records(frames[name])} for name in ("steps", "operations", "calls")},
        **{name: records(frames[name]) for name in ("errors_by_size", "worst")},
        "checks": [
            {
                **{name: getattr(check, name) for name in ("name", "agrees", "compared", "worst", "reason")},
                "differences": records(check.differences),
            }
            for check in comparison.checks
        ],
    }


def _errors(frame: pd.DataFrame) -> dict[str, float]:
    median, worst = typical_and_worst(frame)
    return {"median_absolute_error": median, "worst_error": worst}


def about(comparison: Compared) -> list[str]:
    """Say in a few lines which runs are compared."""
    sides = (("predicted", comparison.predicted), ("measured", comparison.measured))
    lines = [f"{comparison.measured.info.name}: {text.counted(comparison.measured.info.world_size, 'rank')}"]
    for role, run in sides:
        world = WORLDS.get(run.info.world, run.info.world)
        early = "" if run.info.complete else f"; ENDED EARLY: {run.info.error or 'no reason was kept'}"
        of_run = (rests_on(run.info), folded(run.info), thinned(run.info), warm_up(run), of_recording(run))
        early += "".join(f"; {words}" for words in of_run if words)
        lines.append(f"{role}: {world} run of {run.info.started or 'an unknown time'}{early}")
    lines += crowded(comparison.measured)
    residual_ns = comparison.measured.info.clock_residual_ns
    if residual_ns:
        lines.append(f"clocks of the measured hosts agree within {text.duration(residual_ns)}")
    return lines


def crowded(measured: Run) -> list[str]:
    """Where a run's ranks were more than the cores of its machines, in a line; none if they were not."""
    info = measured.info
    cluster = info.scenario.get("cluster", {})
    on_cores = cluster.get("host", {}).get("gpu", {}).get("kind") == "cpu" and not cluster.get("hosts_share_cores")
    if not (on_cores and 0 < info.cores < info.world_size):
        return []
    return [
        f"measured with {text.counted(info.world_size, 'rank')} on {text.counted(info.cores, 'core')}: what counts on a"
        " core for each rank predicts too little; docs/calibration.md"
    ]


def _about(frame: pd.DataFrame) -> str:
    median, worst = typical_and_worst(frame)
    return f"median error {text.percent(median)}, worst {text.signed_percent(worst)}"


def _steps(comparison: Compared) -> RenderableType:
    frame = comparison.steps
    if not len(frame):
        return text.paragraph("Steps: neither run completed one.")
    kept = frame if len(frame) <= _ROWS else frame.loc[frame["error"].abs().nlargest(_ROWS).index].sort_values("step")
    more = "" if len(kept) == len(frame) else f"; the worst {_ROWS} of {len(frame)}"
    title = f"Steps: {_about(frame)}{more}"
    return text.table(title, ["step", *TIMES_COLUMNS], cells(kept, ["step", *TIMES]))


def _operations(comparison: Compared) -> RenderableType:
    frame = comparison.operations
    if not len(frame):
        return text.paragraph("Operations: none in either run.")
    kept = frame.head(_ROWS)
    more = "" if len(kept) == len(frame) else f"; the longest {_ROWS} of {len(frame)}"
    rows = cells(named(kept), ["name", "kind", *TIMES])
    title = f"Operations per rank and step: {_about(frame)}{more}"
    return text.table(title, ["operation", "kind", *TIMES_COLUMNS], rows, left=2)


def _sizes(comparison: Compared) -> RenderableType:
    frame = errors_by_size(classes(comparison.calls), by="part")
    if not len(frame):
        return text.paragraph("By size: no operation is in both runs.")
    parts = frame["part"].replace({"compute": "computation"})
    rows = cells(frame.assign(part=parts, size=size_ranges(frame)), ["part", "size", *SIZE_ERRORS])
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


def size_ranges(frame: pd.DataFrame) -> list[str]:
    """Each row's range of sizes."""
    return list(map(size_range, frame["size_from_bytes"].tolist(), frame["size_until_bytes"].tolist()))


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


def _worst(comparison: Compared) -> RenderableType:
    frame = comparison.worst
    if not len(frame):
        return text.paragraph("Worst cases: the runs have no operation of a rank and step in common.")
    kept = frame.head(_WORST)
    rows = cells(named(kept), ["name", "rank", "step", *TIMES, "error_of_step"])
    more = f"; the first {_WORST} of {len(frame)}" if len(kept) < len(frame) else ""
    columns = ["operation", "rank", "step", *TIMES_COLUMNS, "of the step"]
    return text.table(f"Largest single differences{more}", columns, rows)


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

"""Compute frames of a fit to NCCL's rows and of its errors, and words for its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.nccl.fit import Fit, HeldOut
from reports.published.collectives import PublishedRow
from reports.store.columns import frame_of_rows
from reports.terminal import text
from reports.terminal.rows import records

# One row per key; a time is in ns. `rows` is the number of fitted rows, `rows_of` describes them.
FITTED = {"key": "str", "present": "float", "fitted": "float", "rows": "int", "rows_of": "str"}
# Errors of the held-out rows, by operation and scale: `mean` is of their sizes, `worst` has its sign.
HELD_OUT = {
    **{"operation": "str", "scale": "str", "rows": "int"},
    **{f"{name}_{when}": "float" for when in ("before", "after") for name in ("mean", "worst")},
}
ALL = "all"
NAMED = "NCCL "  # prefix of the names of groups
_WORSE = 0.0005  # the least difference that the tables would show
_MOST_NAMED = 3


def fitted_frame(fit: Fit) -> pd.DataFrame:
    """Return a frame of `FITTED`."""
    rows = [(one.key, one.present, one.value, len(one.rows), rows_of(one.rows)) for one in fit.fitted]
    return frame_of_rows(rows, FITTED)


def held_out(fit: Fit) -> pd.DataFrame:
    """Return a frame of `HELD_OUT`, operations in order of appearance; the last row is of all."""
    rows = [
        {"operation": op, "scale": scale, **_errors(members)}
        for (op, scale), members in [*_by_series(fit.held_out).items(), ((ALL, ""), list(fit.held_out))]
    ]
    return frame_of_rows(rows, HELD_OUT)


def worse(fit: Fit) -> str:
    """Return a sentence on groups whose held-out rows were better predicted before the fit; "" if there are none."""
    rows = [row for row in records(held_out(fit)) if row["mean_after"] > row["mean_before"] + _WORSE]
    named = [
        f"{' '.join(filter(None, (row['operation'], row['scale'])))}: {text.percent(row['mean_after'])} instead of"
        f" {text.percent(row['mean_before'])}"
        for row in rows
    ]
    return f"held-out rows are predicted worse than before: mean error of {'; '.join(named)}" if named else ""


def groups(fit: Fit) -> list[dict[str, Any]]:
    """Return the errors on held-out rows by operation and number of GPUs: fields of
    `scenarios.config.provenance.ErrorGroup`.

    `least` and `most` are the measured sizes in bytes, outside of which predictions are extrapolated; `spread` is None
    if no size was measured several times.
    """
    found = []
    for (op, scale), members in _by_series(fit.held_out).items():
        short = statistics.errors([one.after for one in members])
        sizes = [one.row.size_bytes for one in members]
        errors = {"median_error": short.signed_median, "typical_error": short.median, "worst_error": short.worst}
        name = f"{NAMED}{op} on {scale} GPUs"
        found.append({"name": name, **errors, "spread": _spread(members), "least": min(sizes), "most": max(sizes)})
    return found


def rows_of(rows: Sequence[PublishedRow]) -> str:
    """Return the files, operations, sizes and scales of rows: "a.txt (all_reduce, 16 MiB to 4 GiB, 2x8 GPUs)"."""
    sizes = sorted(row.size_bytes for row in rows)
    span = " to ".join(dict.fromkeys(text.size(size) for size in (sizes[0], sizes[-1])))
    files = _some(row.file.rsplit("/", 1)[-1] for row in rows)
    return f"{files} ({_some(row.op for row in rows)}, {span}, {_some(map(scale_of, rows))} GPUs)"


def scale_of(row: PublishedRow) -> str:
    """Return the scale of a row as nodes x GPUs per node."""
    return f"{row.nodes}x{row.gpus_per_node}"


def value_text(key: str, value: float) -> str:
    """Return a key's value as people write it."""
    return f"{value / 1e3:.4g} us" if key == "nccl_start" else f"{value:.4g}"


def _some(names: Iterable[str]) -> str:
    """Return distinct names joined; of many the first, and the number of others."""
    each = list(dict.fromkeys(names))
    more = len(each) - _MOST_NAMED
    return ", ".join(each) if more <= 0 else f"{', '.join(each[:_MOST_NAMED])} and {more} more"


def _by_series(rows: Iterable[HeldOut]) -> dict[tuple[str, str], list[HeldOut]]:
    found: dict[tuple[str, str], list[HeldOut]] = {}
    for one in rows:
        found.setdefault((one.row.op, scale_of(one.row)), []).append(one)
    return found


def _errors(rows: Sequence[HeldOut]) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": len(rows)}
    for when in ("before", "after"):
        signed = [getattr(one, when) for one in rows]
        found |= {f"mean_{when}": float(np.abs(signed).mean()), f"worst_{when}": statistics.errors(signed).worst}
    return found


def _spread(rows: Iterable[HeldOut]) -> float | None:
    """Return the median relative interquartile range over sizes measured several times; None if there are none."""
    times: dict[int, list[float]] = {}
    for one in rows:
        times.setdefault(one.row.size_bytes, []).append(one.row.time_us)
    spreads = [
        float(np.subtract(*np.quantile(repeats, [0.75, 0.25])) / np.median(repeats))
        for repeats in times.values()
        if len(repeats) > 1
    ]
    return float(np.median(spreads)) if spreads else None

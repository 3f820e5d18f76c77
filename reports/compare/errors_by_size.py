"""How far a prediction is off for messages and computations of each size: are small ones too fast, large ones right?

Pure functions of the calls of both runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.analysis.frames import KEYS, ints
from reports.analysis.intervals import Floats, Ints
from reports.compare.calls import BothCalls
from reports.store.columns import fixed

_SIZES = ["size_from_bytes", "size_until_bytes"]
CALL_ERRORS = {
    **dict.fromkeys(KEYS, "str"),
    "part": "str",
    **dict.fromkeys([*_SIZES, "predicted_count", "measured_count"], "int"),
    **dict.fromkeys(["predicted_ns", "measured_ns", "error"], "float"),
}
ERRORS_BY_SIZE = {
    "part": "str",
    "kind": "str",
    **dict.fromkeys([*_SIZES, "rows"], "int"),
    **dict.fromkeys(["signed_median", "median", "worst"], "float"),
}
_EXPONENTS = 64  # of the sizes that an int64 holds, and one for 0 bytes


def call_errors(both: BothCalls) -> pd.DataFrame:
    """One row for each kind, label, stream and size of a single call, sizes by powers of two.

    `predicted_ns` and `measured_ns` are medians over the `..._count` calls of that size on each side, a rank counting
    as often as there are ranks like it; where one side has none, its time and the error are nan.
    """
    sides = [_medians(calls, side) for side, calls in (("predicted", both.predicted), ("measured", both.measured))]
    rows = sides[0].merge(sides[1], on=["operation", "exponent"], how="outer")
    exponent = ints(rows, "exponent")
    names = both.names.iloc[ints(rows, "operation")]
    columns = {
        **{str(name): names[name] for name in names},
        "size_from_bytes": np.where(exponent < 0, 0, 1 << np.maximum(exponent, 0)),
        "size_until_bytes": 1 << (exponent + 1),
        "predicted_count": rows["predicted_count"].fillna(0),
        "measured_count": rows["measured_count"].fillna(0),
        "predicted_ns": rows["predicted_ns"],
        "measured_ns": rows["measured_ns"],
        "error": signed_error(rows),
    }
    return fixed(columns, CALL_ERRORS).sort_values([*KEYS, *_SIZES], ignore_index=True)


def errors_by_size(calls: pd.DataFrame, by: str = "kind") -> pd.DataFrame:
    """Of `call_errors`, one row for each kind and size with errors: their signed median, the median of their sizes and
    the worst with its sign. Each of the `rows` counts once, however many calls are in it.

    With `by` "part", of all communication and of all computation; `kind` is "" there.
    """
    known = calls[calls["error"].notna()]
    keys = ["part", *(["kind"] if by == "kind" else []), *_SIZES]
    found: list[dict[str, Any]] = []
    for key, rows in known.groupby(keys, sort=True):
        errors = statistics.errors(rows["error"].tolist())
        about = {"signed_median": errors.signed_median, "median": errors.median, "worst": errors.worst}
        found.append({"kind": "", **dict(zip(keys, key, strict=True)), "rows": len(rows), **about})
    return fixed({name: [row[name] for row in found] for name in ERRORS_BY_SIZE}, ERRORS_BY_SIZE)


def signed_error(frame: pd.DataFrame) -> Floats:
    """(predicted - measured) / measured; nan where either lacks, or nothing was measured."""
    measured = frame["measured_ns"].to_numpy(float)
    difference = frame["predicted_ns"].to_numpy(float) - measured
    error: Floats = np.divide(difference, measured, out=np.full(len(frame), np.nan), where=measured > 0)
    return error


def _medians(calls: pd.DataFrame, side: str) -> pd.DataFrame:
    key = ints(calls, "operation") * _EXPONENTS + _exponents(ints(calls, "size_bytes")) + 1
    keys, groups = np.unique(key, return_inverse=True)
    weights = ints(calls, "rank_count")
    times = calls["duration_ns"].to_numpy(float)
    (median,) = statistics.weighted_quantiles(groups, times, weights, count=len(keys), shares=[0.5])
    count = np.bincount(groups, weights, len(keys))
    return pd.DataFrame(
        {
            "operation": keys // _EXPONENTS,
            "exponent": keys % _EXPONENTS - 1,
            f"{side}_ns": median,
            f"{side}_count": count,
        }
    )


def _exponents(sizes: Ints) -> Ints:
    """The greatest power of two that is no greater; -1 of 0 bytes."""
    _, exponents = np.frexp(sizes.astype(float))  # of 0 it is 0
    return np.asarray(exponents, np.int64) - 1

"""Compare single operations of two runs: errors of predictions by size, sizes in words, and the worst cases.

A million spans take some 60 MB per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.analysis.frames import COMPUTE, KEYS, STEP, ints
from reports.analysis.intervals import Floats, Ints
from reports.run import Run
from reports.store.columns import frame_of_columns, frame_of_rows
from reports.store.parts import Part

_NUMBERS = ["rank", "step", "sequence", "rank_count", "start_ns", "end_ns"]
_BYTES = ["bytes_out", "bytes_sent", "bytes_read", "bytes_written"]
_COLUMNS = [*KEYS, *_NUMBERS, *_BYTES]

NAMES = {**dict.fromkeys(KEYS, "str"), "part": "str"}
CALLS = dict.fromkeys(["operation", *_NUMBERS, "duration_ns", "size_bytes"], "int")

_Numbered = dict[tuple[str, str, str], int]
MOST = 20
MOST_OF_ONE = 3

_SIDES = ("predicted", "measured")
WORST = {
    "rank": "int",
    "step": "int",
    **dict.fromkeys(KEYS, "str"),
    "call": "int",
    **{f"{side}_{moment}": "int" for side in _SIDES for moment in ("start_ns", "end_ns")},
    **dict.fromkeys(["predicted_ns", "measured_ns", "difference_ns"], "int"),
    **dict.fromkeys(["error", "error_of_step"], "float"),
}
_PLACE = ["operation", "step", "call", "rank"]
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
_EXPONENTS = 64  # powers of two of an int64, and one more for 0 bytes


@dataclass(frozen=True, slots=True)
class BothCalls:
    """A pair of runs' operations inside steps, without those that either run left out by choice or warms up in.

    `names` has a row for each operation (`kind`, `label`, `stream`, `part`); `predicted` and `measured` a row for each
    span, in which `operation` is a row of `names`. `size_bytes` is what a call sends or, if it sends nothing, receives;
    for a computation what it reads and writes.
    """

    names: pd.DataFrame
    predicted: pd.DataFrame
    measured: pd.DataFrame


def calls_of_both(predicted: Run, measured: Run) -> BothCalls:
    """Return the calls of both runs, reading a part of the spans at a time."""
    known: _Numbered = {}
    left_out = warm_up_of(predicted, measured)
    sides = [_calls(run, other, known, left_out) for run, other in ((predicted, measured), (measured, predicted))]
    names = sorted(known)  # so that numbers do not depend on the order of reading
    places = np.empty(len(names), np.int64)
    places[[known[name] for name in names]] = np.arange(len(names))
    columns = {key: [name[at] for name in names] for at, key in enumerate(KEYS)}
    part = ["compute" if kind == COMPUTE else "communication" for kind in columns["kind"]]
    return BothCalls(
        frame_of_columns({**columns, "part": part}, NAMES),
        *(side.assign(operation=places[ints(side, "operation")]) for side in sides),
    )


def warm_up_of(predicted: Run, measured: Run) -> list[int]:
    """Return the steps that are warm-up in either run."""
    return sorted({*predicted.warm_up, *measured.warm_up})


def _calls(run: Run, other: Run, known: _Numbered, left_out: Sequence[int]) -> pd.DataFrame:
    """Return the calls of all parts, one after the other."""
    parts = run.parts(_COLUMNS, beside=False)
    return pd.concat([_of_part(part, other, known, left_out) for part in parts], ignore_index=True)


def _of_part(part: Part, other: Run, known: _Numbered, left_out: Sequence[int]) -> pd.DataFrame:
    all_spans = part.spans
    kept = part.own & ~all_spans["step"].isin(left_out).to_numpy(bool)
    kept &= ((all_spans["kind"] != STEP) & (all_spans["step"] >= 0)).to_numpy(bool)
    spans = all_spans.loc[kept & other.keeps(ints(all_spans, "rank"), ints(all_spans, "step")), _COLUMNS]
    columns = {
        "operation": _numbers(spans, known),
        **{name: ints(spans, name) for name in _NUMBERS},
        "duration_ns": ints(spans, "end_ns") - ints(spans, "start_ns"),
        "size_bytes": _size_bytes(spans),
    }
    return frame_of_columns(columns, CALLS)


def _numbers(spans: pd.DataFrame, known: _Numbered) -> Ints:
    """Return each span's operation number; new operations get the next numbers."""
    grouped = spans.groupby(KEYS, sort=False)
    names = spans.drop_duplicates(KEYS)[KEYS].itertuples(index=False, name=None)  # in the order of the groups
    numbers = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
    return numbers[grouped.ngroup().to_numpy()]


def _size_bytes(spans: pd.DataFrame) -> Ints:
    sent, received = ints(spans, "bytes_sent"), ints(spans, "bytes_out")
    touched = (spans["bytes_read"] + spans["bytes_written"]).to_numpy(float).astype(np.int64)
    moved = np.maximum(np.where(sent > 0, sent, received), 0)
    return np.where((spans["kind"] == COMPUTE).to_numpy(bool), touched, moved)


def worst_cases(both: BothCalls, measured_steps: pd.DataFrame) -> pd.DataFrame:
    """Return at most `MOST` operations, largest difference first, at most `MOST_OF_ONE` with equal kind and label.

    Calls are paired by their number (`call`, from 0, by `sequence`) among an operation's calls by a rank in a step. The
    rank with the largest difference represents such a call. `difference_ns` is predicted - measured, `error_of_step`
    its quotient with the measured step's time, from `measured_steps` (a run's `steps`).
    """
    pairs = _pairs(both)
    furthest = np.argsort(-np.abs(ints(pairs, "difference_ns")), kind="stable")
    pairs = pairs.iloc[furthest].drop_duplicates(["operation", "step", "call"])
    names = both.names.iloc[ints(pairs, "operation")]
    labelled = pairs.assign(**{key: names[key].array for key in KEYS})
    kept = labelled.groupby(["kind", "label"], sort=False).cumcount() < MOST_OF_ONE
    shown = labelled[kept.to_numpy(bool)].head(MOST)
    step_ns = shown["step"].map(measured_steps.set_index("step")["step_ns"]).to_numpy(float)
    of_step = np.divide(shown["difference_ns"], step_ns, out=np.full(len(shown), np.nan), where=step_ns > 0)
    return frame_of_columns(shown.assign(error=signed_error(shown), error_of_step=of_step), WORST)


def _pairs(both: BothCalls) -> pd.DataFrame:
    sides = [
        _index_calls(calls).add_prefix(f"{side}_")
        for side, calls in zip(_SIDES, (both.predicted, both.measured), strict=True)
    ]
    pairs = sides[0].join(sides[1], how="inner").reset_index()
    return pairs.assign(difference_ns=pairs["predicted_ns"] - pairs["measured_ns"])


def _index_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """Index calls by their number among an operation's calls by their rank in their step."""
    ordered = calls.sort_values(["operation", "step", "rank", "sequence"], kind="stable", ignore_index=True)
    ordered = ordered.assign(call=ordered.groupby(["operation", "step", "rank"], sort=False).cumcount())
    return ordered.set_index(_PLACE)[["start_ns", "end_ns", "duration_ns"]].rename(columns={"duration_ns": "ns"})


def call_errors(both: BothCalls) -> pd.DataFrame:
    """Return one row for each kind, label, stream and size of a single call, sizes by powers of two.

    `predicted_ns` and `measured_ns` are medians over the `..._count` calls of that size on each side, weighted by the
    ranks represented; where one side has none, its time and the error are nan.
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
    return frame_of_columns(columns, CALL_ERRORS).sort_values([*KEYS, *_SIZES], ignore_index=True)


def errors_by_size(calls: pd.DataFrame, by: str = "kind") -> pd.DataFrame:
    """Group `call_errors` by kind and size: medians of signed errors and of their sizes, and the worst, signed.

    A row of `call_errors` counts once, however many calls are in it. Groups `by` "part" are all communication and all
    computation, with "" as `kind`.
    """
    known = calls[calls["error"].notna()]
    keys = ["part", *(["kind"] if by == "kind" else []), *_SIZES]
    found: list[dict[str, Any]] = []
    for key, rows in known.groupby(keys, sort=True):
        errors = statistics.errors(rows["error"].tolist())
        about = {"signed_median": errors.signed_median, "median": errors.median, "worst": errors.worst}
        found.append({"kind": "", **dict(zip(keys, key, strict=True)), "rows": len(rows), **about})
    return frame_of_rows(found, ERRORS_BY_SIZE)


def signed_error(frame: pd.DataFrame) -> Floats:
    """Return (predicted - measured) / measured; nan where either is missing, or nothing was measured."""
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
    """Return the exponent of the greatest power of two that is no greater; -1 for 0 bytes."""
    _, exponents = np.frexp(sizes.astype(float))  # 0 for 0 bytes
    return np.asarray(exponents, np.int64) - 1


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def classes(calls: pd.DataFrame) -> pd.DataFrame:
    """Return `call_errors` with sizes in classes a factor of 16 wide; 0 bytes are a class of their own."""
    start = calls["size_from_bytes"].to_numpy(float)
    exponent = (np.log2(np.maximum(start, 1)) // 4 * 4).astype(np.int64)
    none = start == 0
    return calls.assign(
        size_from_bytes=np.where(none, 0, 1 << exponent), size_until_bytes=np.where(none, 1, 1 << (exponent + 4))
    )


def size_ranges(frame: pd.DataFrame) -> list[str]:
    """Return each row's range of sizes."""
    return list(map(size_range, frame["size_from_bytes"].tolist(), frame["size_until_bytes"].tolist()))


def size_range(from_bytes: int, until_bytes: int) -> str:
    """Return a range of sizes without its upper end: "4-64 KiB", "256 B-4 KiB", "0 B"."""
    if not from_bytes:
        return "0 B"
    (first, unit), (last, last_unit) = (_power_of_two(value) for value in (from_bytes, until_bytes))
    return f"{first}-{last} {unit}" if unit == last_unit else f"{first} {unit}-{last} {last_unit}"


def size_of_power(size_bytes: int) -> str:
    """Return "4 KiB" for 4,096, a power of two."""
    return " ".join(map(str, _power_of_two(size_bytes)))


def _power_of_two(size_bytes: int) -> tuple[int, str]:
    place = min((size_bytes.bit_length() - 1) // 10, len(_UNITS) - 1)
    return size_bytes >> (10 * place), _UNITS[place]

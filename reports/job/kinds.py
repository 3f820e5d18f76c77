"""What reports read of a job's files: the kind of each value in job.json, and the columns of each frame."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.errors import ReportError

_NUMBER, _TEXT, _NOTHING = "a number", "text", " or null"
_TYPES: dict[str, tuple[type, ...]] = {_NUMBER: (int, float), _TEXT: (str,)}
_EACH = "*"  # the kind of all other values of an object
_QUANTILES = {"p5": _NUMBER, "p95": _NUMBER}

# A kind is a word, a mapping for an object, or a list of the kind of its elements.
PREDICTED: Mapping[str, Any] = {
    "name": _TEXT,
    "scenario": _TEXT,
    "goal": {"kind": _TEXT, "value": _NUMBER},
    **dict.fromkeys(("hosts", "spare_hosts", "gpus", "step_s", "steps", "simulated_jobs"), _NUMBER),
    "gpu": _TEXT + _NOTHING,
    "step_source": _TEXT,
    "rests_on": _TEXT,
    "checkpoint": {
        **dict.fromkeys(("interval_steps", "interval_s", "blocks_s", "background_s"), _NUMBER),
        "interval": _TEXT,
        "rules_s": dict.fromkeys(("young", "daly", "availability", "closed_form"), _NUMBER + _NOTHING),
    },
    "failure_rates": {
        "source": _TEXT,
        "date": _TEXT,
        "profile": _TEXT + _NOTHING,
        "between_s": _NUMBER + _NOTHING,
        "per_day": {_EACH: _NUMBER},
    },
    **dict.fromkeys(("goodput", "goodput_closed_form", "time_to_train_s", "gpu_hours"), _NUMBER),
    **dict.fromkeys(("goodput_quantiles", "time_to_train_s_quantiles"), _QUANTILES),
    **dict.fromkeys(("samples", "usd", "usd_per_1e9", "kwh"), _NUMBER + _NOTHING),
    "lost": {_EACH: _NUMBER},
    "failures": {_EACH: _NUMBER},
}
REAL: Mapping[str, Any] = {
    "name": _TEXT,
    **dict.fromkeys(("hosts", "ranks", "steps", "interval_steps"), _NUMBER),
    "kills": [_TEXT],
    "played_on": _TEXT,
    "measured": {"seconds": _NUMBER, "steps_again": _NUMBER},
    "predicted": {"seconds": _NUMBER},
    "lost": {_EACH: {"measured_s": _NUMBER, "predicted_s": _NUMBER}},
    "spans": [{"begin_s": _NUMBER, "end_s": _NUMBER, "what": _TEXT, "why": _TEXT}],
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "draws": dict.fromkeys(("seconds", "goodput"), _NUMBER),
    "phases": {**dict.fromkeys(("begin_s", "end_s", "hosts"), _NUMBER), "what": _TEXT, "why": _TEXT},
    "intervals": dict.fromkeys(("steps", "seconds", "goodput", "closed_form", "is_own"), _NUMBER),
    "sizes": dict.fromkeys(("hosts", "gpus", "goodput", "useful_hosts", "time_to_train_s"), _NUMBER),
    "changes": {"group": _TEXT, "change": _TEXT, "goodput": _NUMBER, "gain": _NUMBER},
}


def check(path: Path, value: Any, kind: Any, key: str = "") -> None:
    """Check a value of a JSON file, and all in it.

    Args:
        path: the file.
        value: what it has.
        kind: what reports read there.
        key: where in the file.

    Raises:
        ReportError: a value is missing, or of another kind.
    """
    if isinstance(kind, list):
        _expect(isinstance(value, list), path, key, value, "a list")
        for place, each in enumerate(value):
            check(path, each, kind[0], f"{key}[{place}]")
    elif isinstance(kind, str):
        _expect(_is_of(value, kind), path, key, value, kind)
    else:
        _expect(isinstance(value, dict), path, key, value, "an object")
        for name in value if _EACH in kind else kind:
            inner = f"{key}.{name}" if key else name
            if name not in value:
                raise ReportError(f"{path}: {inner}: missing")
            check(path, value[name], kind.get(name, kind.get(_EACH)), inner)


def _is_of(value: Any, kind: str) -> bool:
    if value is None:
        return kind.endswith(_NOTHING)
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return is_finite and not isinstance(value, bool) and isinstance(value, _TYPES[kind.removesuffix(_NOTHING)])


def _expect(is_so: bool, path: Path, key: str, value: Any, kind: str) -> None:
    if not is_so:
        raise ReportError(f"{path}: {key} = {json.dumps(value)}: expected {kind}")


def check_frame(path: Path, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a job's frame; it has rows, unless no change gains anything, and the columns that reports read.

    Raises:
        ReportError: it lacks a column or rows, or a column has another kind.
    """
    if not len(frame) and name != "changes":
        raise ReportError(f"{path}: damaged: it has no rows")
    for column, kind in COLUMNS[name].items():
        is_number = column in frame and pd.api.types.is_numeric_dtype(frame[column])
        if column not in frame or (len(frame) and is_number != (kind == _NUMBER)):
            raise ReportError(f"{path}: column {column} is missing or not {kind}")
    return frame

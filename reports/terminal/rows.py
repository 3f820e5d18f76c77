"""Turn rows of frames into cells for people: names of operations, and numbers written as their columns' names imply."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.stragglers import STRAGGLER
from reports.terminal import text

# Nouns for one link of a class, in sentences.
_NOUNS = {
    "nic": "NIC",
    "uplink": "leaf",
    "nvlink": "NVLink",
    "pcie": "PCIe link",
    "memory": "path through memory",
    "host": "path to host memory",
}


def ratio(value: float) -> str:
    """Return "1.25"; a dash for nan."""
    return "-" if np.isnan(value) else f"{value:.2f}"


# The form of a number by a pattern in its column's name; the first match counts, other numbers are whole.
_FORMS: tuple[tuple[re.Pattern[str], Callable[[Any], str]], ...] = (
    (re.compile(r"_ns$"), text.duration),
    (re.compile(r"bytes_per_s$"), text.rate),
    (re.compile(r"bytes"), text.size),
    (re.compile(r"error|worst|difference|signed_median|_change$"), text.signed_percent),
    (re.compile(r"over_mean$"), ratio),
    (re.compile(r"share$|utilisation$|spread$|mean|median|p95"), text.percent),
    (re.compile(r"calls_per_step"), lambda calls: f"{calls:.4g}"),
    (re.compile(r"ids_per_step|samples|members"), text.number),
    (re.compile(r"^(rank|step|call)$"), str),
)


def write_cell(column: str, value: Any) -> str:
    """Return a cell of a table: text unchanged, a number in the form of its column."""
    if isinstance(value, str):
        return value
    return next((form for pattern, form in _FORMS if pattern.search(column)), "{:,}".format)(value)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame as a list of rows."""
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def cells(frame: pd.DataFrame, columns: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table that shows these columns, as `write_cell`."""
    return [[write_cell(name, row[name]) for name in columns] for row in records(frame[list(dict.fromkeys(columns))])]


def operation_name(row: dict[str, Any]) -> str:
    """Return an operation's name: its label, else its kind; with its stream unless that is the main one."""
    name = str(row["label"] or row["kind"])
    return name if row["stream"] in ("main", "") else f"{name} @{row['stream']}"


def kind(row: dict[str, Any]) -> str:
    """Return an operation's kind for a table, "" where its name is the kind."""
    return str(row["kind"]) if row["label"] else ""


def name_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of operations with their `name`, and `kind` only where it is not the name."""
    rows = records(frame)
    return frame.assign(name=[operation_name(row) for row in rows], kind=[kind(row) for row in rows])


def operation_names(frame: pd.DataFrame) -> list[str]:
    """Return a name for each row of kind, label and stream, with its kind where label and stream are ambiguous."""
    labelled = frame[frame["label"] != ""]
    twice = labelled.duplicated(["label", "stream"], keep=False).reindex(frame.index, fill_value=False)
    return [
        f"{operation_name(row)} ({row['kind']})" if again else operation_name(row)
        for row, again in zip(records(frame[["kind", "label", "stream"]]), twice, strict=True)
    ]


def represent_rows(frame: pd.DataFrame, name: str = "rank") -> list[str]:
    """Return each row's `name` ("rank" or "link") as a representative of `NAME_count` members: "4139 & 15 more"."""
    return [text.representative(one, count) for one, count in zip(frame[name], frame[f"{name}_count"], strict=True)]


def straggler_sentence(row: dict[str, Any]) -> str:
    """Return one row of `stragglers` in words: its name, its distance from its peers, and the time; no full stop."""
    return _gpu(row) if row["kind"] == "gpu" else _link(row)


def why_late(row: dict[str, Any]) -> str:
    """Return how the GPU of a row of `stragglers` differs from its peers."""
    if row["cause"] == STRAGGLER:
        return f"its computations take {row['ratio']:.1f} times as long as equal ones on other ranks"
    touched = f"{text.size(row['bytes'])} per step, none"
    if row["median_bytes"]:
        touched = f"{row['bytes'] / row['median_bytes']:.1f} times as many bytes as"
    return f"{row['label']} touches {touched} on the median rank"


def _gpu(row: dict[str, Any]) -> str:
    rank = text.representative(f"rank {row['rank']}", row["count"])
    name = f"GPU {row['gpu']} of host {row['host']} ({rank})"
    more, step = _of_step(row["time_ns"] - row["median_ns"], row), text.duration(row["step_ns"])
    if row["cause"] == STRAGGLER:
        return f"{name}: {why_late(row)}; {more} of a {step} step"
    return f"{name}: {why_late(row)}; it computes {more} longer than the median rank, of a {step} step"


def _link(row: dict[str, Any]) -> str:
    name, noun = text.representative(row["name"], row["count"]), _NOUNS.get(row["kind"], row["kind"])
    per_host = " per host" if row["per_host"] else ""
    if row["cause"] == STRAGGLER:
        rate, median = text.rate(row["bytes_per_s"]), text.rate(row["median_bytes_per_s"])
        words = f"{rate}{per_host} where the median {noun} has {median}"
    else:
        carried, median = text.size(row["bytes"]), text.size(row["median_bytes"])
        words = f"carries {carried} per step{per_host and ' and host'}, the median {noun} {median}"
    needs, usual = (_of_step(row[name], row) for name in ("time_ns", "median_ns"))
    return f"{name}: {words}; needs {needs} of a {text.duration(row['step_ns'])} step, the median {noun} {usual}"


def _of_step(ns: float, row: dict[str, Any]) -> str:
    """Return a time as text, at most the step: concurrent computations may add up to more."""
    return text.duration(min(ns, row["step_ns"]))

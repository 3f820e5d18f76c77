"""Names of operations for people."""

from __future__ import annotations

from typing import Any

import pandas as pd


def operation_name(row: dict[str, Any]) -> str:
    """An operation as a person knows it: its label, else its kind; with its stream unless that is the main one."""
    name = str(row["label"] or row["kind"])
    return name if row["stream"] in ("main", "") else f"{name} @{row['stream']}"


def operation_names(frame: pd.DataFrame) -> list[str]:
    """One for each row of kind, label and stream, which has its kind where label and stream are not enough."""
    labelled = frame[frame["label"] != ""]
    twice = labelled.duplicated(["label", "stream"], keep=False).reindex(frame.index, fill_value=False)
    rows = frame[["kind", "label", "stream"]].to_dict("records")
    names = [{str(key): value for key, value in row.items()} for row in rows]
    return [
        f"{operation_name(row)} ({row['kind']})" if again else operation_name(row)
        for row, again in zip(names, twice, strict=True)
    ]

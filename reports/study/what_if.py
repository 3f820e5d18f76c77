"""What changes of a scenario gain, in the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType

from reports.terminal import text
from reports.terminal.rows import records

# `gain`: of samples a second, or of steps where there are no samples, over the scenario as it is; `options` make the
# change on a command line.
CHANGES = (*("change", "status", "sentence", "step_ns", "samples_per_s", "exposed_share", "gain", "values", "options"),)


def ranked(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of `CHANGES`: the first row, the scenario as it is, then the others, the one that gains most first."""
    frame = pd.DataFrame(rows)
    by = "samples_per_s" if pd.notna(frame["samples_per_s"].iloc[0]) else "step_ns"
    first = frame[by].iloc[0]
    frame["gain"] = frame[by] / first - 1 if by == "samples_per_s" else first / frame[by] - 1
    others = frame.iloc[1:].sort_values("gain", ascending=False, kind="stable", na_position="last")
    return pd.concat([frame.iloc[:1], others])[list(CHANGES)].reset_index(drop=True)


def summarize(changes: pd.DataFrame, name: str) -> RenderableType:
    """A table, the first row as it is, then what fails and why, then how each change is made."""
    done = changes[(changes["status"] == "done").to_numpy(bool)]
    rows = [
        [
            row["change"],
            text.duration(row["step_ns"]),
            "-" if pd.isna(row["samples_per_s"]) else f"{row['samples_per_s']:,.0f}",
            "-" if pd.isna(row["exposed_share"]) else text.percent(row["exposed_share"]),
            text.signed_percent(row["gain"]) if number else "",
        ]
        for number, row in enumerate(records(done))
    ]
    columns = ["change", "step", "samples/s", "exposed", "gain"]
    failed = [f"{row['change']}: {row['sentence']}" for row in records(changes) if row["status"] != "done"]
    made = [f"{row['change']}: {row['options']}" for row in records(done) if row["options"]]
    return Group(
        text.table(f"{name}, one change at a time, each simulated", columns, rows, left=1),
        *(text.paragraph(f"not played: {words}") for words in failed),
        text.paragraph("\n".join(["Each is made by", *made])),
    )


@text.json_ready
def as_json(changes: pd.DataFrame, name: str) -> dict[str, Any]:
    """The same rows."""
    return {"name": name, "changes": records(changes)}

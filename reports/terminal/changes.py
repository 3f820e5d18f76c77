"""What a run would be with one thing of its scenario changed, the change that gains most first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich.console import RenderableType

from reports.run import Run
from reports.terminal import text
from reports.terminal.rows import records

TITLE = "One change at a time, each simulated, by what it gains"
COLUMNS = ["change", "step", "samples/s", "transfer", "waiting", "gain"]
NOTE = (
    "Transfer and waiting: shares of a step in which the mean rank only communicates, and only waits for other ranks."
)


def ranked(run: Run) -> pd.DataFrame:
    """The rows of `what_if` with `transfer_share`, `wait_share` and `gain`: the scenario as it is, then the best first.

    `gain` is of samples a second, or of steps where there are no samples. Numbers of what was not played are nan.
    """
    frame = run.what_if.copy()
    numbers = ["step_ns", "samples_per_s", "transfer_ns", "wait_ns"]
    frame[numbers] = frame[numbers].astype(float).where(frame["status"] == "done")
    frame["samples_per_s"] = frame["samples_per_s"].replace(0.0, np.nan)
    for name in ("transfer", "wait"):
        frame[f"{name}_share"] = frame[f"{name}_ns"] / frame["step_ns"]
    speed = frame["samples_per_s"] if frame["samples_per_s"].head(1).notna().any() else 1 / frame["step_ns"]
    frame["gain"] = speed / (speed.iloc[0] if len(speed) else np.nan) - 1
    others = frame.iloc[1:].sort_values("gain", ascending=False, kind="stable", na_position="last")
    return pd.concat([frame.iloc[:1], others], ignore_index=True)


def best(run: Run) -> str:
    """Which change gains most, without a full stop; "" where none was played."""
    found = ranked(run).iloc[1:2]
    found = found[found["gain"].notna()]
    return "".join(
        f"of single changes most is gained by {row['change']}: {text.signed_percent(row['gain'])}"
        for row in records(found)
    )


def table_rows(changes: pd.DataFrame) -> list[list[str]]:
    """Those of `ranked` that were played to their end, under `COLUMNS`."""
    return [
        [
            row["change"],
            text.duration(row["step_ns"]),
            text.number(row["samples_per_s"]),
            text.percent(row["transfer_share"]),
            text.percent(row["wait_share"]),
            text.signed_percent(row["gain"]) if number else "",
        ]
        for number, row in enumerate(records(changes[(changes["status"] == "done").to_numpy(bool)]))
    ]


def not_played(changes: pd.DataFrame) -> list[str]:
    """A sentence for each change that did not come to its end."""
    return [f"not played: {row['change']}: {row['sentence']}" for row in records(changes) if row["status"] != "done"]


def options(changes: pd.DataFrame) -> list[str]:
    """How each of the others is made on a command line."""
    done = changes[(changes["status"] == "done").to_numpy(bool)]
    return [f"{row['change']}: {row['options']}" for row in records(done) if row["options"]]


def summarize(run: Run) -> Iterator[RenderableType]:
    """A table, what was not played and why, then how each change is made; nothing where nobody asked."""
    changes = ranked(run)
    if not len(changes):
        return
    yield text.table(TITLE, COLUMNS, table_rows(changes))
    said = [NOTE, *not_played(changes), "Each is made by", *options(changes)]
    yield text.paragraph("\n".join(said))

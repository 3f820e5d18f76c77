"""Tables of prediction errors against published step times, for terminals and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from reports.analysis import statistics
from reports.published import collective_tables
from reports.published.steps import configurations, name_of, pairs
from reports.store.columns import fixed
from reports.terminal import text
from reports.terminal.rows import cells, ratio, records

# Errors of the rows of one group: `signed_median` and `worst` keep the sign, `mean` is of the errors' sizes.
GROUP_ERRORS = {"group": "str", "rows": "int", **dict.fromkeys(["signed_median", "mean", "worst"], "float")}
# Configurations with a smaller difference in time do not test the predicted order.
DIFFERS = 0.10
_TITLES = {
    "in_all": "Overall",
    "by_gpu": "By GPU: its profile",
    "by_scale": "By scale: nodes x GPUs of each",
    "by_round": "By round",
}


def tables(joined: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return `GROUP_ERRORS` of all predicted rows and by GPU, scale, and model and round; `joined`: of `steps.join`."""
    known = joined[joined["predicted_ms"].notna()]
    scales = list(zip(known["nodes"].tolist(), known["gpus"].tolist(), strict=True))
    return {
        "in_all": _errors_by(known, ["all rows"] * len(known)),
        "by_gpu": _errors_by(known, known["profile"].tolist()),
        "by_scale": _errors_by(known, [f"{nodes}x{gpus // nodes}" for nodes, gpus in scales]),
        "by_round": _errors_by(known, [f"{row['model']} {row['round']}".rstrip() for row in records(known)]),
    }


def right_order(compared: pd.DataFrame) -> tuple[int, int]:
    """Return how many pairs that differ by more than `DIFFERS` are predicted in the right order, and their number."""
    far = compared[np.abs(np.log(compared["measured"].to_numpy(float))) > np.log1p(DIFFERS)]
    return int(far["agrees"].sum()), len(far)


def summarize(joined: pd.DataFrame) -> RenderableType:
    """Return the error tables, configurations with their ratios, and the rows not predicted; 80 columns wide."""
    known = joined[joined["predicted_ms"].notna()]
    parts: list[RenderableType] = [text.paragraph(_headline(joined, known))]
    if len(known):
        for name, frame in tables(joined).items():
            columns = [name.removeprefix("by_").replace("in_all", "of"), "rows", "median", "mean", "worst"]
            parts.append(text.table(_TITLES[name], columns, cells(frame, list(GROUP_ERRORS))))
        parts += [_configurations(model, same) for model, same in configurations(joined).groupby("model", sort=False)]
    reasons = list(collective_tables.missed(joined))
    if reasons:
        parts.append(text.paragraph(f"Not predicted: {text.counted(len(joined) - len(known), 'row')}", style="bold"))
        parts.append(text.paragraph("\n".join(reasons)))
    return Group(*parts)


@text.json_ready
def as_json(joined: pd.DataFrame, files: Sequence[Path], profile: str | None) -> dict[str, Any]:
    """Return all tables and rows as JSON-ready values; `files` and `profile` are the user's arguments."""
    found = configurations(joined)
    return {
        "files": [str(file) for file in files],
        "profile": profile,
        **{name: records(frame) for name, frame in tables(joined).items()},
        "configurations": records(found),
        "pairs": records(pairs(found)),
        "measurements": records(joined),
    }


def _errors_by(known: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Return the errors of each label's rows; labels in order of appearance."""
    errors, rows = known["error"].to_numpy(float), []
    for label in dict.fromkeys(labels):
        signed = errors[[each == label for each in labels]]
        short = statistics.errors(signed.tolist())
        rows.append((label, len(signed), short.signed_median, float(np.abs(signed).mean()), short.worst))
    return fixed({name: [row[at] for row in rows] for at, name in enumerate(GROUP_ERRORS)}, GROUP_ERRORS)


def _headline(joined: pd.DataFrame, known: pd.DataFrame) -> str:
    found = f"{text.counted(len(joined), 'step time')}, {len(known):,} of them predicted."
    if not len(known):
        return found
    right, far = right_order(pairs(configurations(joined)))
    order = f" Of {far:,} pairs of configurations more than 10 % apart, {right:,} are in the right order."
    return (
        f"{found} An error is predicted / measured - 1: positive is too slow a prediction. median: signed; mean: of the"
        f" errors' sizes; worst: with its sign.{order if far else ''}"
    )


def _configurations(model: object, same: pd.DataFrame) -> RenderableType:
    """Return a table of each configuration, with its time as a multiple of the first one's."""
    first = same.iloc[0]
    rows = [
        [
            name_of(row),
            str(row["rows"]),
            text.duration(1e6 * row["step_ms"]),
            text.duration(1e6 * row["predicted_ms"]),
            text.signed_percent(row["error"]),
            ratio(row["step_ms"] / first["step_ms"]),
            ratio(row["predicted_ms"] / first["predicted_ms"]),
        ]
        for row in records(same)
    ]
    columns = ["configuration", "rows", "measured", "predicted", "error", "ratio", "predicted"]
    title = (
        f"{model}: medians of each configuration (nodes x GPUs, profile, batch,"
        " round; ratio: to the first, measured and then predicted)"
    )
    return text.table(title, columns, rows)

"""Published times of whole training steps: read from CSV files, checked, and joined with predictions of scenarios."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from reports.errors import ReportError
from reports.published import csv_rows
from reports.published.outcome import outcome_of
from reports.store.columns import fixed

# What a prediction needs to know of a row, and what makes two predicted rows the same configuration.
SETTING = ("scenario", "model", "round", "gpu", "nodes", "gpus", "global_batch")
CONFIGURATION = ("model", "round", "scenario", "profile", "nodes", "gpus", "global_batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One system's median step time; `gpus` and `global_batch` are those of all nodes.

    `scenario` is what is simulated, on the GPU's profile and with these counts; "" if the model's name says it.
    """

    file: str
    line: int
    model: str
    round: str
    system: str
    gpu: str
    nodes: int
    gpus: int
    global_batch: int
    step_ms: float
    scenario: str


# What `join` gives, one row a measurement.
PREDICTED = {
    **{field.name: str(field.type) for field in dataclasses.fields(StepRow)},
    **dict.fromkeys(["predicted_ms", "error"], "float"),
    **dict.fromkeys(["profile", "reason"], "str"),
}
# What `pairs` gives: two configurations of one model, and how much slower the second one is.
PAIRS = {
    **dict.fromkeys(["model", "one", "other"], "str"),
    **dict.fromkeys(["measured", "predicted"], "float"),
    "agrees": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """The steady step time, and what was simulated on which profile."""

    predicted_ms: float
    scenario: str
    profile: str


# Of a row and a profile's name (None: the row's GPU decides). It raises ReportError where it cannot predict the row.
Predict = Callable[[StepRow, str | None], StepPrediction]


def is_steps(path: Path) -> bool:
    """Return whether a file's first line names `step_ms`; not of a file that cannot be read."""
    return "step_ms" in csv_rows.names_of(path)


def read(path: Path) -> csv_rows.Measurements[StepRow]:
    """Every row of a CSV file, as `csv_rows.read` reads it.

    Raises:
        ReportError: with a sentence for every mistake in the file.
    """
    found = csv_rows.read(path, _COLUMNS, StepRow)
    wrong = [
        f"{row.file}: line {row.line}: gpus = {row.gpus}: expected as many on each of {row.nodes} nodes"
        for row in found.rows
        if row.gpus % row.nodes
    ]
    if wrong:
        raise ReportError("\n".join(wrong))
    return found


def join(rows: Iterable[StepRow], predict: Predict, profile: str | None = None) -> pd.DataFrame:
    """A frame of `PREDICTED`: each row with its prediction and signed error, or with the reason why it has none.

    Rows of one configuration are predicted once.
    """
    known: dict[tuple[Any, ...], StepPrediction | str] = {}
    each = []
    for row in rows:
        key = tuple(getattr(row, name) for name in SETTING)
        if key not in known:
            known[key] = outcome_of(row, predict, profile, "ms")
        each.append(_joined(row, known[key]))
    return fixed({name: [one[name] for one in each] for name in PREDICTED}, PREDICTED)


def configurations(joined: pd.DataFrame) -> pd.DataFrame:
    """Predicted rows of one configuration as one: `rows`, medians of `step_ms` and `predicted_ms`, their `error`."""
    known = joined[joined["predicted_ms"].notna()]
    by = known.groupby(list(CONFIGURATION), sort=False)
    found = by.agg(rows=("step_ms", "size"), step_ms=("step_ms", "median"), predicted_ms=("predicted_ms", "median"))
    return found.assign(error=found["predicted_ms"] / found["step_ms"] - 1).reset_index()


def pairs(found: pd.DataFrame) -> pd.DataFrame:
    """`PAIRS` of `configurations`: how many times as long the second one takes, measured and predicted."""
    rows = []
    for model, same in found.groupby("model", sort=False):
        named = list(zip(map(name_of, same.to_dict("records")), same["step_ms"], same["predicted_ms"], strict=True))
        for (one, measured, predicted), (other, measured_2, predicted_2) in combinations(named, 2):
            agrees = (measured_2 > measured) == (predicted_2 > predicted)
            rows.append((str(model), one, other, measured_2 / measured, predicted_2 / predicted, agrees))
    return fixed({name: [row[at] for row in rows] for at, name in enumerate(PAIRS)}, PAIRS)


def name_of(row: Mapping[Any, Any]) -> str:
    """A configuration in short; what was simulated, unless the model and the round say it."""
    ready = re.fullmatch(rf"mlperf_{re.escape(row['model'])}(?:_([a-z]{{2,}}))?(?:_v\d+_\d+)?", row["scenario"])
    own = row["scenario"] if ready is None else ready[1]
    said = f"{row['nodes']}x{row['gpus'] // row['nodes']} {row['profile']} {row['global_batch']:,}"
    return " ".join(filter(None, (said, row["round"], own)))


def _joined(row: StepRow, outcome: StepPrediction | str) -> dict[str, Any]:
    known = dataclasses.asdict(row)
    if isinstance(outcome, str):
        return known | {"predicted_ms": math.nan, "error": math.nan, "profile": "", "reason": outcome}
    return known | dataclasses.asdict(outcome) | {"error": outcome.predicted_ms / row.step_ms - 1, "reason": ""}


_COLUMNS = {
    "model": csv_rows.text(),
    "round": csv_rows.text(may_be_blank=True),
    "system": csv_rows.text(may_be_blank=True),
    "gpu": csv_rows.text(),
    "nodes": csv_rows.whole(1),
    "gpus": csv_rows.whole(1),
    "global_batch": csv_rows.whole(1),
    "step_ms": csv_rows.above_zero(),
    "scenario": csv_rows.text(may_be_blank=True),
}

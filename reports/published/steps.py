"""Read published times of whole training steps from CSV files, check them, and join them with predictions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from reports.errors import ReportError
from reports.published import csv_rows
from reports.published.outcome import join_outcomes, outcome_of
from reports.store.columns import frame_of_rows

# The fields of a row that a prediction needs, and those in which rows of one configuration agree.
SETTING = ("scenario", "model", "round", "gpu", "nodes", "gpus", "global_batch")
CONFIGURATION = ("model", "round", "scenario", "profile", "nodes", "gpus", "global_batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A system's median step time; `gpus` and `global_batch` are those of all nodes.

    `scenario` is the scenario to simulate, on the GPU's profile and with these counts; "" if the model's name implies
    it.
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


# Columns of `join`, one row per measurement.
PREDICTED = {
    **{field.name: str(field.type) for field in dataclasses.fields(StepRow)},
    **dict.fromkeys(["predicted_ms", "error"], "float"),
    **dict.fromkeys(["profile", "reason"], "str"),
}
# How step times spread in a measurement; predictions are compared with its median.
_SPREAD = ("p10", "p90")
# Columns of `pairs`: two configurations of one model, and the time of the second over that of the first.
PAIRS = {
    **dict.fromkeys(["model", "one", "other"], "str"),
    **dict.fromkeys(["measured", "predicted"], "float"),
    "agrees": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """A steady step time, the scenario that was simulated, and its profile."""

    predicted_ms: float
    scenario: str
    profile: str


# Predicts a row on the named profile (None: that of the row's GPU); raises ReportError where it cannot.
Predict = Callable[[StepRow, str | None], StepPrediction]


def is_steps(path: Path) -> bool:
    """Return whether a file's first line names `step_ms`; False for a file that cannot be read."""
    return "step_ms" in csv_rows.names_of(path)


def read(path: Path) -> csv_rows.Measurements[StepRow]:
    """Return every row of a CSV file, as `csv_rows.read` does.

    Raises:
        ReportError: with a sentence for every mistake in the file.
    """
    found = csv_rows.read(path, _COLUMNS, StepRow, _SPREAD)
    wrong = [
        f"{row.file}: line {row.line}: gpus = {row.gpus}: expected as many on each of {row.nodes} nodes"
        for row in found.rows
        if row.gpus % row.nodes
    ]
    if wrong:
        raise ReportError("\n".join(wrong))
    return found


def join(rows: Iterable[StepRow], predict: Predict, profile: str | None = None) -> pd.DataFrame:
    """Return a frame of `PREDICTED`: each row with its prediction and signed error, or the reason why it has none.

    Rows of one configuration are predicted once.
    """
    known: dict[tuple[Any, ...], StepPrediction | str] = {}
    listed, outcomes = [], []
    for row in rows:
        key = tuple(getattr(row, name) for name in SETTING)
        if key not in known:
            known[key] = outcome_of(row, predict, profile, "ms")
        listed.append(dataclasses.asdict(row))
        outcomes.append(known[key])
    return join_outcomes(listed, outcomes, PREDICTED, {"error": "predicted_ms step_ms"})


def configurations(joined: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration: `rows`, medians of `step_ms` and `predicted_ms`, and their `error`."""
    known = joined[joined["predicted_ms"].notna()]
    by = known.groupby(list(CONFIGURATION), sort=False)
    found = by.agg(rows=("step_ms", "size"), step_ms=("step_ms", "median"), predicted_ms=("predicted_ms", "median"))
    return found.assign(error=found["predicted_ms"] / found["step_ms"] - 1).reset_index()


def pairs(found: pd.DataFrame) -> pd.DataFrame:
    """Return `PAIRS` of `configurations`: the time of the second over that of the first, measured and predicted."""
    rows = []
    for model, same in found.groupby("model", sort=False):
        named = list(zip(map(name_of, same.to_dict("records")), same["step_ms"], same["predicted_ms"], strict=True))
        for (one, measured, predicted), (other, measured_2, predicted_2) in combinations(named, 2):
            agrees = (measured_2 > measured) == (predicted_2 > predicted)
            rows.append((str(model), one, other, measured_2 / measured, predicted_2 / predicted, agrees))
    return frame_of_rows(rows, PAIRS)


def name_of(row: Mapping[Any, Any]) -> str:
    """Return a short name of a configuration, with its scenario unless model and round imply it."""
    ready = re.fullmatch(rf"mlperf_{re.escape(row['model'])}(?:_([a-z]{{2,}}))?(?:_v\d+_\d+)?", row["scenario"])
    own = row["scenario"] if ready is None else ready[1]
    said = f"{row['nodes']}x{row['gpus'] // row['nodes']} {row['profile']} {row['global_batch']:,}"
    return " ".join(filter(None, (said, row["round"], own)))


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

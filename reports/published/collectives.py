"""Read published measurements of collectives from CSV files, check them, and join them with predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from reports.published import csv_rows
from reports.published.outcome import join_outcomes, outcome_of

# The fields of a row that a prediction needs.
SETTING = ("op", "library", "gpu", "nodes", "gpus_per_node", "size_bytes", "link_gbit_per_s", "one_way_delay_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A measurement: the time of one operation, and where it was measured.

    `size_bytes` is the buffer of one rank; for all_gather and reduce_scatter the larger one, as in nccl-tests. `gpu`
    and `quality` are "" and the link's rate and delay None where the file lacks them. `launch_us` is the host's time to
    launch one operation on its GPUs, if that bounded the time; None: the GPUs were the bottleneck.
    """

    file: str
    line: int
    source: str
    op: str
    library: str
    gpu: str
    nodes: int
    gpus_per_node: int
    size_bytes: int
    link_gbit_per_s: float | None
    one_way_delay_ms: float | None
    time_us: float
    quality: str
    launch_us: float | None = None


# Columns of `join`, one row per measurement.
PREDICTED = {
    **{field.name: str(field.type).removesuffix(" | None") for field in dataclasses.fields(PublishedRow)},
    **dict.fromkeys(["predicted_us", "error", "formula_us", "formula_error"], "float"),
    **dict.fromkeys(["algorithm", "protocol", "profile", "reason"], "str"),
}
_ERRORS = {"error": "predicted_us time_us", "formula_error": "formula_us time_us"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The link model's time of a row, and how it was simulated; `formula_us` is the time by NCCL's formula, if any."""

    predicted_us: float
    formula_us: float | None
    algorithm: str
    protocol: str
    profile: str


Measurements = csv_rows.Measurements[PublishedRow]
# Predicts a row on the named profile (None: that of the row's GPU); raises ReportError where it cannot.
Predict = Callable[[PublishedRow, str | None], Prediction]


def read(path: Path) -> Measurements:
    """Return every row of a CSV file, as `csv_rows.read` does.

    Raises:
        ReportError: with a sentence for every mistake in the file.
    """
    return csv_rows.read(path, _COLUMNS, PublishedRow)


def join(rows: Iterable[PublishedRow], predict: Predict, profile: str | None = None) -> pd.DataFrame:
    """Return a frame of `PREDICTED`: each row with its prediction and signed error, or the reason why it has none."""
    listed = list(rows)
    outcomes = [_outcome(row, predict, profile) for row in listed]
    return join_outcomes([dataclasses.asdict(row) for row in listed], outcomes, PREDICTED, _ERRORS)


def _outcome(row: PublishedRow, predict: Predict, profile: str | None) -> Prediction | str:
    if not row.size_bytes:
        return "size_bytes = 0: expected something to send"  # nccl-tests lists sizes that round down to nothing
    return outcome_of(row, predict, profile, "us")


_COLUMNS = {
    "source": csv_rows.text(),
    "op": csv_rows.text(),
    "library": csv_rows.text(),
    "gpu": csv_rows.text(may_be_blank=True),
    "nodes": csv_rows.whole(1),
    "gpus_per_node": csv_rows.whole(1),
    "size_bytes": csv_rows.whole(0),
    "link_gbit_per_s": csv_rows.above_zero(may_be_blank=True),
    "one_way_delay_ms": csv_rows.number(lambda value: value >= 0, "a number from 0 on", may_be_blank=True),
    "time_us": csv_rows.above_zero(),
    "quality": csv_rows.text(may_be_blank=True),
    "launch_us": csv_rows.above_zero(may_be_blank=True),
}

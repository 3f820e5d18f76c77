"""Read published times of single operators on GPUs from CSV files, and join them with predictions by kernel laws.

A file's columns decide the form of its rows; all cells are kept, because a prediction reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from reports.errors import ReportError
from reports.published import csv_rows
from reports.published.outcome import join_outcomes, outcome_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedColumn:
    """A column with times: `form` is the name by which predictions know its rows, `us` the column's unit in us."""

    column: str
    form: str
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A kind of file, identified by its columns; `gpu` may be one of them."""

    columns: frozenset[str]
    timed: tuple[TimedColumn, ...]


FORMS = (
    Form(
        columns=frozenset(("kind", "desc", "us")),
        timed=(TimedColumn(column="us", form="operators", us=1.0),),
    ),
    Form(
        columns=frozenset(("T", "E", "D", "B", "L", "opt", "w", "fwd_ms", "bwd_ms")),
        timed=(
            TimedColumn(column="fwd_ms", form="embeddings forward", us=1e3),
            TimedColumn(column="bwd_ms", form="embeddings backward", us=1e3),
        ),
    ),
    Form(
        columns=frozenset(("op", "gpu", "B", "M", "N", "K", "H", "ms")),
        timed=(TimedColumn(column="ms", form="float32", us=1e3),),
    ),
    Form(
        columns=frozenset(("op", "gpu", "dtype", "shape", "value_us")),
        timed=(TimedColumn(column="value_us", form="gpus", us=1.0),),
    ),
)
_OF_ROWS = ("file", "line", "timed", "measured_us")
# Columns that `join` adds to each row's own; a column of a file that has one of these names is left out.
JOINED = {
    **{"file": "str", "line": "int", "timed": "str"},
    **dict.fromkeys(["measured_us", "predicted_us", "error", "law_us", "law_error"], "float"),
    **dict.fromkeys(["family", "profile", "reason"], "str"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTime:
    """A measured time: the cell of column `timed` of a line, whose other cells are `cells`."""

    file: str
    line: int
    timed: str
    form: str
    measured_us: float
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPrediction:
    """A predicted time of a row, its family of operators, and the profile used for its GPU.

    `predicted_us` is by the law and the profile's table of measured operators, `law_us` by the law alone.
    """

    predicted_us: float
    law_us: float
    family: str
    profile: str


# Predicts a row on the named profile (None: that of the row's GPU); raises ReportError where it cannot.
Predict = Callable[[PublishedTime, str | None], KernelPrediction]


def form_of(path: Path) -> Form | None:
    """Return the form that a file's first line names; None if it names none, or the file cannot be read."""
    names = frozenset(csv_rows.names_of(path))
    return next((form for form in FORMS if form.columns <= names), None)


def read(path: Path, profile: str | None = None) -> csv_rows.Measurements[PublishedTime]:
    """Return every measured time of a CSV file that has a form; blank times are skipped.

    Raises:
        ReportError: with a sentence for every mistake in the file, or if its rows name no GPU and there is no profile.
    """
    form, names = form_of(path), csv_rows.names_of(path)
    assert form is not None, f"{path}: no form"
    if "gpu" not in names and profile is None:
        name = csv_rows.Log[PublishedTime](path).name
        raise ReportError(f"{name}: no column gpu; expected --profile NAME, the profile of the GPU that was measured")
    times = {timed.column for timed in form.timed}
    as_text = csv_rows.text(may_be_blank=True)
    columns = {name: _time(form) if name in times else as_text for name in names if name not in JOINED}
    lines = csv_rows.read(path, columns, _Line)
    rows = [row for line in lines.rows for row in line.rows(form)]
    return csv_rows.Measurements(rows=tuple(rows), notes=lines.notes)


def join(rows: Iterable[PublishedTime], predict: Predict, profile: str | None = None) -> pd.DataFrame:
    """Return a frame of the rows' own columns and `JOINED`: prediction and signed error, or why there is none.

    Columns of several files are concatenated, blank where a file lacks one.
    """
    listed = list(rows)
    outcomes = [outcome_of(row, predict, profile, "us") for row in listed]
    kinds = {"file": "str", "line": "int", **{name: "str" for row in listed for name in row.cells}} | JOINED
    named = [{**row.cells, **{name: getattr(row, name) for name in _OF_ROWS}} for row in listed]
    errors = {"error": "predicted_us measured_us", "law_error": "law_us measured_us"}
    return join_outcomes(named, outcomes, kinds, errors)


class _Line:
    """A line of a file; its cells are passed by their columns' names."""

    def __init__(self, file: str, line: int, **cells: str) -> None:
        self._file, self._line, self._cells = file, line, cells

    def rows(self, form: Form) -> Iterable[PublishedTime]:
        for timed in form.timed:
            if cell := self._cells[timed.column]:
                yield PublishedTime(
                    file=self._file,
                    line=self._line,
                    timed=timed.column,
                    form=timed.form,
                    measured_us=float(cell) * timed.us,
                    cells=self._cells,
                )


def _time(form: Form) -> csv_rows.CsvColumn:
    """Return a column of times kept as text; where lines have two times, a time may be blank."""
    time = csv_rows.above_zero(may_be_blank=len(form.timed) > 1)

    def check(cell: str) -> str:
        time.parse(cell)
        return cell

    return dataclasses.replace(time, parse=check, blank="")

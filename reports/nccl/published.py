"""Published measurements of collectives: read from CSV files, checked, and joined with predictions."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports.errors import ReportError
from reports.store.columns import fixed
from reports.store.replace import replaced
from reports.terminal.text import counted, printable, shortened

# What `join` gives, one row a measurement.
PREDICTED = {
    "file": "str",
    "line": "int",
    "source": "str",
    "op": "str",
    "library": "str",
    "gpu": "str",
    "nodes": "int",
    "gpus_per_node": "int",
    "size_bytes": "int",
    "link_gbit_per_s": "float",
    "one_way_delay_ms": "float",
    "time_us": "float",
    "quality": "str",
    "predicted_us": "float",
    "error": "float",
    "formula_us": "float",
    "formula_error": "float",
    "algorithm": "str",
    "protocol": "str",
    "profile": "str",
    "reason": "str",
}
# What of a row a prediction needs to know.
SETTING = ("op", "library", "gpu", "nodes", "gpus_per_node", "size_bytes", "link_gbit_per_s", "one_way_delay_ms")
_LONGEST = 60  # characters of a value in a sentence
_MOST = 10**15  # more than any buffer has bytes, and whole as a float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One measurement: the time of one operation, and where it was taken.

    `size_bytes` is the buffer of one rank; of all_gather and reduce_scatter the larger one, as nccl-tests gives it.
    `gpu` and `quality` are "" and the link's rate and delay None where the file does not say.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The link model's time of one row and how it was played; `formula_us` is what NCCL's own formula says, if any."""

    predicted_us: float
    formula_us: float | None
    algorithm: str
    protocol: str
    profile: str


# Of a row and a profile's name (None: the row's GPU decides). It raises ReportError where it cannot predict the row.
Predict = Callable[[PublishedRow, str | None], Prediction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All rows of some files in their order; `notes` are sentences on what in them was not as usual."""

    rows: tuple[PublishedRow, ...]
    notes: tuple[str, ...]

    @classmethod
    def together(cls, found: Sequence[Measurements]) -> Measurements:
        """The measurements of several files, in their order."""
        return cls(
            rows=tuple(row for one in found for row in one.rows),
            notes=tuple(note for one in found for note in one.notes),
        )


def read(files: Sequence[Path]) -> Measurements:
    """Every row of the files. Columns may stand in any order; those of other names are not read, which a note says.

    Raises:
        ReportError: with a sentence for every mistake in the files.
    """
    found = [_read_one(file) for file in files]
    mistakes = [sentence for one in found for sentence in one.mistakes]
    if mistakes:
        raise ReportError("\n".join(mistakes))
    return Measurements(
        rows=tuple(row for one in found for row in one.rows), notes=tuple(note for one in found for note in one.notes)
    )


def join(rows: Iterable[PublishedRow], predict: Predict, profile: str | None = None) -> pd.DataFrame:
    """A frame of `PREDICTED`: each row with its prediction and signed error, or with the reason why it has none."""
    each = [_joined(row, _outcome(row, predict, profile)) for row in rows]
    return fixed({name: [one[name] for one in each] for name in PREDICTED}, PREDICTED)


def check_free(path: Path) -> None:
    """Before long work: whether `write` will be able to make this file.

    Raises:
        ReportError: it exists already, or its folder is none.
    """
    if os.path.lexists(path):
        raise ReportError(f"{path}: exists already; nothing is ever overwritten, give another file")
    if not path.parent.is_dir():
        raise ReportError(f"{path}: could not be written: {path.parent} is not a folder")


def write(joined: pd.DataFrame, path: Path) -> None:
    """The frame as CSV, whole or not at all; what is unknown is blank.

    Raises:
        ReportError: the file exists already, or the disk refuses.
    """
    write_text(joined.to_csv(index=False, lineterminator="\n"), path)


def write_text(content: str, path: Path) -> None:
    """A file in UTF-8, whole or not at all.

    Raises:
        ReportError: the file exists already, or the disk refuses.
    """
    check_free(path)
    with replaced(path) as draft:
        draft.write_text(content, encoding="utf-8", newline="")


def _outcome(row: PublishedRow, predict: Predict, profile: str | None) -> Prediction | str:
    if not row.size_bytes:
        return "size_bytes = 0: expected something to send"  # nccl-tests lists what rounds down to nothing
    try:
        found = predict(row, profile)
    except ReportError as error:
        return " ".join(str(error).split())
    assert found.predicted_us > 0, f"{row}: predicted {found.predicted_us} us"
    assert math.isfinite(found.predicted_us), f"{row}: predicted {found.predicted_us} us"
    return found


def _joined(row: PublishedRow, outcome: Prediction | str) -> dict[str, Any]:
    known = dataclasses.asdict(row)
    if isinstance(outcome, str):
        known |= dict.fromkeys(("predicted_us", "error", "formula_us", "formula_error"), math.nan)
        known |= dict.fromkeys(("algorithm", "protocol", "profile"), "") | {"reason": outcome}
    else:
        formula = None if outcome.formula_us is None else outcome.formula_us / row.time_us - 1
        known |= dataclasses.asdict(outcome) | {"error": outcome.predicted_us / row.time_us - 1, "reason": ""}
        known |= {"formula_error": formula}
    return {name: math.nan if value is None else value for name, value in known.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """How a cell is read (a ValueError if it is not `expected`), and what a blank one means, if it may be blank."""

    parse: Callable[[str], object]
    expected: str
    may_be_blank: bool = False
    blank: object = None


def _words(cell: str) -> str:
    words = " ".join(cell.split())  # a line's end within quotes would break the tables
    if not words.isprintable():
        raise ValueError
    return words


def _number(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value) or "_" in cell:  # 1_000 is a number in Python only
        raise ValueError
    return value


def _whole(cell: str, least: int) -> int:
    value = _number(cell)
    if not least <= value <= _MOST or value != int(value):
        raise ValueError
    return int(value)


def _above_zero(cell: str) -> float:
    value = _number(cell)
    if value <= 0:
        raise ValueError
    return value


def _not_below_zero(cell: str) -> float:
    value = _number(cell)
    if value < 0:
        raise ValueError
    return value


_NAME = _Column(parse=_words, expected="printable text")
_SAYING = _Column(parse=_words, expected="printable text or nothing", may_be_blank=True, blank="")
_COUNT = _Column(parse=lambda cell: _whole(cell, 1), expected="a whole number from 1 to 10^15")
_COLUMNS = {
    "source": _NAME,
    "op": _NAME,
    "library": _NAME,
    "gpu": _SAYING,
    "nodes": _COUNT,
    "gpus_per_node": _COUNT,
    "size_bytes": _Column(parse=lambda cell: _whole(cell, 0), expected="a whole number from 0 to 10^15"),
    "link_gbit_per_s": _Column(parse=_above_zero, expected="a number above 0 or nothing", may_be_blank=True),
    "one_way_delay_ms": _Column(parse=_not_below_zero, expected="a number from 0 on or nothing", may_be_blank=True),
    "time_us": _Column(parse=_above_zero, expected="a number above 0"),
    "quality": _SAYING,
}


class _File:
    """What one file says: its rows, notes and mistakes."""

    def __init__(self, path: Path) -> None:
        self.name = printable(path)
        self.rows: list[PublishedRow] = []
        self.notes: list[str] = []
        self.mistakes: list[str] = []

    def say(self, sentence: str) -> None:
        self.mistakes.append(f"{self.name}: {sentence}")

    def check_names(self, names: Sequence[str]) -> bool:
        """Whether the first line has the columns that are needed, each once."""
        missing = [name for name, column in _COLUMNS.items() if name not in names and not column.may_be_blank]
        twice = [name for name in _COLUMNS if names.count(name) > 1]
        if missing:
            expected = ", ".join(_COLUMNS)
            self.say(f"first line: {', '.join(missing)}: missing; expected {expected}, with commas between them")
        if twice:
            self.say(f"first line: {', '.join(twice)}: given more than once; expected once")
        others = [shortened(repr(name), _LONGEST) for name in names if name not in _COLUMNS]
        if others:
            self.notes.append(f"{self.name}: first line: {', '.join(others)}: not read")
        blank = [name for name in _COLUMNS if name not in names and name not in missing]
        if blank:
            self.notes.append(f"{self.name}: first line: {', '.join(blank)}: missing; taken as blank in every row")
        return not missing and not twice

    def add(self, line: int, names: Sequence[str], cells: Sequence[str]) -> None:
        if len(cells) != len(names):
            self.say(f"line {line}: {counted(len(cells), 'value')}; expected {len(names)}, as in the first line")
            return
        given = dict(zip(names, cells, strict=True))
        values: dict[str, Any] = {"file": self.name, "line": line}
        before = len(self.mistakes)
        for name, column in _COLUMNS.items():
            values[name] = self._value(line, name, column, given.get(name, ""))
        if len(self.mistakes) == before:
            self.rows.append(PublishedRow(**values))

    def _value(self, line: int, name: str, column: _Column, cell: str) -> object:
        if not cell and column.may_be_blank:
            return column.blank
        try:
            if cell:
                return column.parse(cell)
        except ValueError:
            pass
        self.say(f"line {line}: {name} = {shortened(repr(cell), _LONGEST)}: expected {column.expected}")
        return None


def _read_one(path: Path) -> _File:
    file = _File(path)
    names: list[str] | None = None
    try:
        for line, cells in _records(path):
            if names is None:
                names = cells
                if not file.check_names(names):
                    return file
            else:
                file.add(line, names, cells)
    except OSError as error:
        file.say(f"could not be read: {error.strerror or error}")
    except UnicodeDecodeError:
        file.say("not UTF-8 text; expected CSV")
    except _NotCsvError as error:
        file.say(str(error))
    if not file.rows and not file.mistakes:
        file.say("no measurements; expected a first line with the columns' names, and rows below it")
    return file


class _NotCsvError(Exception):
    pass


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not blank, with the line where it begins, counted from 1."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, strict=True)  # else a quote that is never closed would swallow the rest
        line = 1
        try:
            for cells in reader:
                if any(map(str.strip, cells)):
                    yield line, [cell.strip() for cell in cells]
                line = reader.line_num + 1
        except csv.Error as error:
            raise _NotCsvError(f"line {line}: not CSV: {error}") from None

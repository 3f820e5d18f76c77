"""Published measurements of collectives: read from CSV files, checked, and joined with predictions."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports.errors import ReportError
from reports.store.columns import fixed
from reports.store.replace import replaced
from reports.terminal.text import counted, printable, shortened

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


# What `join` gives, one row a measurement.
PREDICTED = {
    **{field.name: str(field.type).removesuffix(" | None") for field in dataclasses.fields(PublishedRow)},
    **dict.fromkeys(["predicted_us", "error", "formula_us", "formula_error"], "float"),
    **dict.fromkeys(["algorithm", "protocol", "profile", "reason"], "str"),
}


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


class Log:
    """What one file says: its rows, notes and mistakes."""

    def __init__(self, path: Path) -> None:
        self.name = printable(path)
        self.rows: list[PublishedRow] = []
        self.notes: list[str] = []
        self.mistakes: list[str] = []

    def say(self, sentence: str) -> None:
        """Add a mistake."""
        self.mistakes.append(f"{self.name}: {sentence}")

    def note(self, sentence: str) -> None:
        """Add what is not as usual."""
        self.notes.append(f"{self.name}: {sentence}")

    def measurements(self, expected: str) -> Measurements:
        """All of it; a ReportError with every mistake, or where there are no rows."""
        if not self.rows and not self.mistakes:
            self.say(f"no measurements; expected {expected}")
        if self.mistakes:
            raise ReportError("\n".join(self.mistakes))
        return Measurements(rows=tuple(self.rows), notes=tuple(self.notes))


def read(path: Path) -> Measurements:
    """Every row of a CSV file. Columns may stand in any order; those of other names are not read, which a note says.

    Raises:
        ReportError: with a sentence for every mistake in the file.
    """
    log, names, line = Log(path), list[str](), 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)  # else a quote that is never closed would swallow the rest
            for record in reader:
                cells = [cell.strip() for cell in record]
                if any(cells) and names:
                    _add(log, line, names, cells)
                elif any(cells):
                    names = cells
                    _check_names(log, names)
                    if log.mistakes:
                        break
                line = reader.line_num + 1
    except OSError as error:
        log.say(f"could not be read: {error.strerror or error}")
    except UnicodeDecodeError:
        log.say("not UTF-8 text; expected CSV")
    except csv.Error as error:
        log.say(f"line {line}: not CSV: {error}")
    return log.measurements("a first line with the columns' names, and rows below it")


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
    if not words or not words.isprintable():
        raise ValueError
    return words


def _number(cell: str, is_expected: Callable[[float], bool]) -> float:
    value = float(cell)
    if not math.isfinite(value) or "_" in cell or not is_expected(value):  # 1_000 is a number in Python only
        raise ValueError
    return value


def _whole(cell: str, least: int) -> int:
    return int(_number(cell, lambda value: least <= value <= _MOST and value == int(value)))


def _above_zero(cell: str) -> float:
    return _number(cell, lambda value: value > 0)


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
    "one_way_delay_ms": _Column(
        parse=lambda cell: _number(cell, lambda value: value >= 0),
        expected="a number from 0 on or nothing",
        may_be_blank=True,
    ),
    "time_us": _Column(parse=_above_zero, expected="a number above 0"),
    "quality": _SAYING,
}


def _check_names(log: Log, names: Sequence[str]) -> None:
    """Whether the first line has the columns that are needed, each once."""
    missing = [name for name, column in _COLUMNS.items() if name not in names and not column.may_be_blank]
    twice = [name for name in _COLUMNS if names.count(name) > 1]
    if missing:
        expected = ", ".join(_COLUMNS)
        log.say(f"first line: {', '.join(missing)}: missing; expected {expected}, with commas between them")
    if twice:
        log.say(f"first line: {', '.join(twice)}: given more than once; expected once")
    others = [shortened(repr(name), _LONGEST) for name in names if name not in _COLUMNS]
    if others:
        log.note(f"first line: {', '.join(others)}: not read")
    blank = [name for name in _COLUMNS if name not in names and name not in missing]
    if blank:
        log.note(f"first line: {', '.join(blank)}: missing; taken as blank in every row")


def _add(log: Log, line: int, names: Sequence[str], cells: Sequence[str]) -> None:
    if len(cells) != len(names):
        log.say(f"line {line}: {counted(len(cells), 'value')}; expected {len(names)}, as in the first line")
        return
    given, before = dict(zip(names, cells, strict=True)), len(log.mistakes)
    values: dict[str, Any] = {"file": log.name, "line": line}
    for name, column in _COLUMNS.items():
        cell = given.get(name, "")
        try:
            values[name] = column.blank if not cell and column.may_be_blank else column.parse(cell)
        except ValueError:
            log.say(f"line {line}: {name} = {shortened(repr(cell), _LONGEST)}: expected {column.expected}")
    if len(log.mistakes) == before:
        log.rows.append(PublishedRow(**values))

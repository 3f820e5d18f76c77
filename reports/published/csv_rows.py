"""Read rows of measurements from CSV files, and report every mistake in them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Generic, TypeVar

from reports.errors import ReportError
from reports.terminal.text import count_words, printable, shorten
from scenarios import given_file

Row = TypeVar("Row")

_LONGEST = 60  # characters of a value that a message quotes
_MOST = 10**15  # more bytes than any buffer has, and exact as a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements(Generic[Row]):
    """A sequence of all rows of some files; `notes` are sentences on what was unusual in the files."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


class Log(Generic[Row]):
    """A collection of one file's rows, notes and mistakes."""

    def __init__(self, path: Path) -> None:
        self.name = printable(path)
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.mistakes: list[str] = []

    def say(self, sentence: str) -> None:
        """Add a mistake of a line."""
        self.mistakes.append(f"{self.name}: {sentence}")

    def note(self, sentence: str) -> None:
        """Add a note on something unusual."""
        self.notes.append(f"{self.name}: {sentence}")

    def measurements(self, expected: str) -> Measurements[Row]:
        """Return rows and notes; raise ReportError with every mistake, or if there are no rows."""
        if not self.rows and not self.mistakes:
            self.say(f"no measurements; expected {expected}")
        if self.mistakes:
            raise ReportError("\n".join(self.mistakes))
        return Measurements(rows=tuple(self.rows), notes=tuple(self.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvColumn:
    """A column of a CSV file: how to parse a cell (ValueError if it is not `expected`), and the value of a blank."""

    parse: Callable[[str], object]
    expected: str
    may_be_blank: bool = False
    blank: object = None


def read(
    path: Path, columns: Mapping[str, CsvColumn], make: Callable[..., Row], beside: Sequence[str] = ()
) -> Measurements[Row]:
    """Return every row of a CSV file; columns may be in any order, unknown ones are skipped with a note.

    Args:
        path: the file.
        columns: the columns by name.
        make: makes a row from the columns' values, and `file` and `line`, by name.
        beside: columns that are skipped without a note.

    Raises:
        ReportError: with a sentence for every mistake in the file.
    """
    log, names, line = Log[Row](path), list[str](), 1
    try:
        with StringIO(given_file.text(path), newline="") as stream:
            reader = csv.reader(stream, strict=True)  # else an unclosed quote would swallow the rest
            for record in reader:
                cells = [cell.strip() for cell in record]
                if any(cells) and names:
                    if len(cells) != len(names):
                        count = count_words(len(cells), "value")
                        log.say(f"line {line}: {count}; expected {len(names)}, as in the first line")
                    elif (values := _values(log, line, columns, dict(zip(names, cells, strict=True)))) is not None:
                        log.rows.append(make(file=log.name, line=line, **values))
                elif any(cells):
                    names = cells
                    _check_names(log, names, columns, beside)
                    if log.mistakes:
                        break
                line = reader.line_num + 1
    except OSError as error:
        log.say(f"could not be read: {error.strerror or error}")
    except UnicodeError:
        log.say("not UTF-8 text; expected CSV")
    except csv.Error as error:
        log.say(f"line {line}: not CSV: {error}")
    return log.measurements("a first line with the columns' names, and rows below it")


def names_of(path: Path) -> list[str]:
    """Return the columns' names in a CSV file's first line; an empty list if it cannot be read."""
    try:
        with StringIO(given_file.text(path), newline="") as stream:
            first = next((record for record in csv.reader(stream) if any(map(str.strip, record))), [])
    except (OSError, UnicodeError, csv.Error):
        return []
    return [name.strip() for name in first]


def whole(least: int) -> CsvColumn:
    """Return a column of whole numbers from `least`."""

    def parse(cell: str) -> int:
        return int(_number(cell, lambda value: least <= value <= _MOST and value == int(value)))

    return CsvColumn(parse=parse, expected=f"a whole number from {least} to 10^15")


def number(is_expected: Callable[[float], bool], expected: str, *, may_be_blank: bool = False) -> CsvColumn:
    """Return a column of finite numbers; a blank is None."""
    said = f"{expected} or nothing" if may_be_blank else expected
    return CsvColumn(parse=lambda cell: _number(cell, is_expected), expected=said, may_be_blank=may_be_blank)


def text(*, may_be_blank: bool = False) -> CsvColumn:
    """Return a column of words with single blanks between them; a blank is ""."""
    said = "printable text or nothing" if may_be_blank else "printable text"
    return CsvColumn(parse=_words, expected=said, may_be_blank=may_be_blank, blank="")


def above_zero(*, may_be_blank: bool = False) -> CsvColumn:
    """Return a column of numbers above 0."""
    return number(lambda value: value > 0, "a number above 0", may_be_blank=may_be_blank)


def _words(cell: str) -> str:
    words = " ".join(cell.split())  # a newline within quotes would break the tables
    if not words or not words.isprintable():
        raise ValueError
    return words


def _number(cell: str, is_expected: Callable[[float], bool]) -> float:
    value = float(cell)
    # float() accepts 1_000, other readers of CSV do not
    if not math.isfinite(value) or "_" in cell or not is_expected(value):
        raise ValueError
    return value


def _check_names(log: Log[Row], names: Sequence[str], columns: Mapping[str, CsvColumn], beside: Sequence[str]) -> None:
    """Add mistakes and notes on the first line: it must have every required column, each once."""
    missing = [name for name, column in columns.items() if name not in names and not column.may_be_blank]
    twice = [name for name in columns if names.count(name) > 1]
    if missing:
        log.say(f"first line: {', '.join(missing)}: missing; expected {', '.join(columns)}, with commas between them")
    if twice:
        log.say(f"first line: {', '.join(twice)}: given more than once; expected once")
    others = [shorten(repr(name), _LONGEST) for name in names if name not in columns and name not in beside]
    if others:
        log.note(f"first line: {', '.join(others)}: not read")


def _values(
    log: Log[Row], line: int, columns: Mapping[str, CsvColumn], given: Mapping[str, str]
) -> dict[str, Any] | None:
    values, before = dict[str, Any](), len(log.mistakes)
    for name, column in columns.items():
        cell = given.get(name, "")
        try:
            values[name] = column.blank if not cell and column.may_be_blank else column.parse(cell)
        except ValueError:
            log.say(f"line {line}: {name} = {shorten(repr(cell), _LONGEST)}: expected {column.expected}")
    return values if len(log.mistakes) == before else None

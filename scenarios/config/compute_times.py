"""Measured times of computations, read from a CSV file and looked up for each call.

A computation is identified by its label and its ordinal among the computations of that label on its rank's stream in
this step. One label may cover computations of several sizes (such as all gradient buckets), which come in the same
order in every step.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.config.toml.look import utf8_content
from scenarios.config.toml.mistakes import path_text, toml_text
from scenarios.config.toml.table_file.csv_file import CsvFile

if TYPE_CHECKING:
    from scenarios.seam.kernel import Kernel
    from scenarios.seam.trace import Span

NEEDED = ("label", "time_us")
COLUMNS = ("label", "call", "time_us", "spread", "samples")  # the last two are for readers of the file
_MOST_US = 3600e6  # an hour, the limit of every time in a scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTime:
    """The mean time of one computation: of the `call`-th with its label in a step, counted from 1.

    If `call` is None, the time is that of every call of the label without a row of its own.
    """

    label: str
    call: int | None
    time_ns: int

    def __str__(self) -> str:
        return self.label if self.call is None else f"{self.label} (call {self.call})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTimes:
    """The rows of one file in its order; each pair of label and call occurs once."""

    path: Path
    rows: tuple[ComputeTime, ...]


class Ordinals:
    """A counter of what each rank does of each kind within a step."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, Hashable], tuple[int, int]] = {}

    def next(self, rank: int, step: int, kind: Hashable) -> int:
        """Return the ordinal, from 1, of the next occurrence of `kind` in the rank's step."""
        last_step, count = self._last.get((rank, kind), (step, 0))
        number = count + 1 if last_step == step else 1
        self._last[rank, kind] = step, number
        return number


class ComputeCounter:
    """A counter of computations by rank, stream and step, which finds their measured times."""

    def __init__(self, times: ComputeTimes | None) -> None:
        self._times = {(row.label, row.call): row for row in times.rows} if times else {}
        self._ordinals = Ordinals()

    def next(self, rank: int, stream: str, step: int, label: str, *, cost: Kernel | Span) -> ComputeTime | None:
        """Return the measured time of the next computation in issue order, or None.

        Computations outside steps, without a row in the file, or without work (such as a rank without a table of some
        kind) have none.
        """
        if not self._times or step < 0:
            return None
        call = self._ordinals.next(rank, step, (stream, label))
        if not (cost.flops or cost.bytes_read or cost.bytes_written):
            return None
        return self._times.get((label, call)) or self._times.get((label, None))


def read_compute_times(path: Path) -> tuple[ComputeTimes, tuple[str, ...]]:
    """Read the file's times, and return them with a sentence for every mistake in the file.

    Columns may come in any order: `label`, `time_us` and, if a label covers several computations of a step, `call`;
    `spread` and `samples` are not read.

    Raises:
        ValueError: the file cannot be read as text; the message is the expected phrase.
    """
    file = _File(path_text(path))
    for line, given in file.lines(utf8_content(path).decode()):
        file.add(line, given)
    if not file.rows and not file.mistakes:
        file.say("no times; expected a first line with the columns' names, and rows below it")
    return ComputeTimes(path=path, rows=tuple(file.rows.values())), tuple(file.mistakes)


class _File(CsvFile):
    """The rows of one file by label and call, and its mistakes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, COLUMNS, NEEDED)
        self._lines: dict[tuple[str, int | None], int] = {}
        self.rows: dict[tuple[str, int | None], ComputeTime] = {}

    def add(self, line: int, given: dict[str, str]) -> None:
        """Add one row below the first line, or record its mistakes."""
        before = len(self.mistakes)
        label = given["label"]
        if not (label and label.isprintable()):
            self._refuse(line, "label", label, "a computation's label")
        call, time_us = self._call(line, given.get("call", "")), self._time_us(line, given["time_us"])
        key = label, call
        if len(self.mistakes) == before and (first := self._lines.setdefault(key, line)) != line:
            which = f"call {call} of each label" if call else "each label"
            self._refuse(line, "label", label, f"{which} once, but line {first} has it already")
        if len(self.mistakes) == before:
            self.rows[key] = ComputeTime(label=label, call=call, time_ns=round(1000 * time_us))

    def _call(self, line: int, cell: str) -> int | None:
        if not cell:
            return None
        if not (cell.isascii() and cell.isdigit() and len(cell) < 10 and int(cell)):
            self._refuse(line, "call", cell, "a whole number from 1 to 999999999, or nothing for every call")
            return None
        return int(cell)

    def _time_us(self, line: int, cell: str) -> float:
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not 0 <= value <= _MOST_US or "_" in cell:  # 1_000 is a number in Python only
            self._refuse(line, "time_us", cell, f"a number from 0 to {_MOST_US:.0f}")
        return value

    def _refuse(self, line: int, column: str, cell: str, expected: str) -> None:
        self.say(f"line {line}: {column} = {toml_text(cell)}: expected {expected}")

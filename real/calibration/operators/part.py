"""The file of an unfinished measurement: each operator's times, or why it was not measured, in lines of JSON.

An interrupted command continues from the file; it is removed when the table is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from statistics import median
from typing import Any

from real.calibration.operators.timers import RepeatTimes
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.as_json import from_json, is_operation, to_json
from scenarios.seam.operations.operation import Operation

SUFFIX = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRepeats:
    """A measured operator: times of its repeats in us, and the bytes of its tensors."""

    operation: Operation
    times_us: tuple[float, ...]
    needed_bytes: int = 0

    def row(self, *, is_cold: bool) -> MeasuredOperator:
        """Return the row of a table: the median of the repeats."""
        return MeasuredOperator(
            operations=(self.operation,), us=median(self.times_us), calls=len(self.times_us), is_cold=is_cold
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredOperator:
    """An operator that was not measured, and why."""

    operation: Operation
    why: str


@dataclass(slots=True)
class PartialMeasurement:
    """A measurement's outcome so far; `spent_s` is the time that it has taken, in s."""

    measured: list[MeasuredRepeats] = field(default_factory=list)
    refused: list[UnmeasuredOperator] = field(default_factory=list)
    spent_s: float = 0.0
    _file: TextIOWrapper | None = None

    def known_operations(self) -> set[Operation]:
        """Return the operators that need no further try."""
        return {one.operation for one in self.measured} | {one.operation for one in self.refused}

    def add(self, outcomes: Iterable[tuple[Operation, RepeatTimes, int]], spent_s: float) -> None:
        """Add a batch's operators, times and bytes of tensors, and write them to the file at once."""
        lines: list[dict[str, Any]] = []
        for operation, taken, needed_bytes in outcomes:
            if taken.times_us:
                times = tuple(round(each, 3) for each in taken.times_us)
                self.measured.append(MeasuredRepeats(operation=operation, times_us=times, needed_bytes=needed_bytes))
                lines.append({_OPERATION: to_json(operation), _TIMES: times, _BYTES: needed_bytes})
            elif taken.why_not:
                self.refused.append(UnmeasuredOperator(operation=operation, why=taken.why_not))
                lines.append({_OPERATION: to_json(operation), _WHY: taken.why_not})
        self.spent_s += spent_s
        lines.append({_SPENT: round(spent_s, 3)})
        if self._file is not None:
            self._file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            self._file.flush()

    def read(self, line: Mapping[str, Any]) -> None:
        """Read a line of an earlier command."""
        if _SPENT in line:
            self.spent_s += float(line[_SPENT])
            return
        if not is_operation(line[_OPERATION]):
            raise ValueError
        operation = from_json(line[_OPERATION])
        if _WHY in line:
            self.refused.append(UnmeasuredOperator(operation=operation, why=str(line[_WHY])))
        else:
            times = tuple(map(float, line[_TIMES]))
            self.measured.append(MeasuredRepeats(operation=operation, times_us=times, needed_bytes=int(line[_BYTES])))


_OPERATION, _TIMES, _BYTES, _WHY, _SPENT = "operation", "us", "bytes", "why", "spent_s"


@contextmanager
def keeping(file: Path, of: Mapping[str, str]) -> Iterator[PartialMeasurement]:
    """Continue the measurement in `file`, or begin one; everything added is in the file at once.

    Its lines are JSON, the first of which is `of`: the device, torch, the method.

    Raises:
        ScenarioError: the file belongs to another measurement, or to none.
    """
    part = PartialMeasurement()
    if file.exists():
        whole = _read(file, of, part)
        file.write_text(whole, encoding="utf-8")  # drops a last line that was cut off
    else:
        file.write_text(json.dumps(dict(of)) + "\n", encoding="utf-8")
    with file.open("a", encoding="utf-8") as opened:
        part._file = opened
        try:
            yield part
        finally:
            part._file = None


def _read(file: Path, of: Mapping[str, str], part: PartialMeasurement) -> str:
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    first, *lines = whole.splitlines() or [""]
    try:
        begun = json.loads(first)
        for name, value in of.items():
            if begun[name] != value:
                raise ScenarioError(
                    f"{file}: {name} = '{begun[name]}': expected '{value}', as this command measures; remove the file"
                    " to begin anew"
                )
        for line in lines:
            part.read(json.loads(line))
    except (ValueError, KeyError, TypeError):
        raise ScenarioError(f"{file}: expected a measurement that was interrupted; remove the file") from None
    return whole

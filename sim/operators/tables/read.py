"""Reads the tables of measured operators that a profile names, and caches the last few."""

from __future__ import annotations

import re
import warnings
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from scenarios.config.catalogue import kernel_table_file
from scenarios.config.gpu import Gpu
from scenarios.kernel_tables.file import Origin
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.errors import Note, ScenarioError
from sim.operators.tables.about import About, about, about_rows, machines_of
from sim.operators.tables.nearest import Nearest
from sim.operators.tables.table import OperatorTable, read, reading
from sim.operators.tables.wheel import MeasuredSystem

# Tables by file, its time of change and the GPU of the law: studies use a few tables again and again.
_KEPT: deque[tuple[tuple[Path, int, Gpu], OperatorTable]] = deque(maxlen=4)
_TABLE = ".parquet"
# A GPU's model in its name: "H200", "A100", "L40S".
_MODEL = re.compile(r"\b[A-Z]+\d+[A-Z]?\b")


def table_of(name: str, gpu: Gpu) -> OperatorTable:
    """Return the table of that name or path; notes about gaps of a trace are warnings.

    Raises:
        ScenarioError: the table cannot be read; one sentence.
    """
    file = kernel_table_file(name)
    with reading(file):
        key = (file, file.stat().st_mtime_ns, gpu)
        found = next((table for kept, table in _KEPT if kept == key), None)
        if found is None:
            found = _read(file, gpu)
            _KEPT.append((key, found))
    return found


def about_table(name: str, gpu: Gpu) -> About:
    """Return the description of the table of that name or path.

    Raises:
        ScenarioError: the table cannot be read; one sentence.
    """
    file = kernel_table_file(name)
    with reading(file):
        if _is_trace(file):
            rows, origin = _rows_of_trace(file)
            return about_rows(rows, origin, _nearest(rows, gpu) if gpu.has_laws else OperatorTable(surfaces={}))
        return about(file, lambda: table_of(name, gpu) if gpu.has_laws else OperatorTable(surfaces={}))


def _read(file: Path, gpu: Gpu) -> OperatorTable:
    if file.is_dir():
        return OperatorTable(surfaces=MeasuredSystem(file, gpu))
    if _is_trace(file):
        rows, origin = _rows_of_trace(file)
        _note_machines(file, [origin.machine], gpu)
        return _nearest(rows, gpu)
    _note_machines(file, machines_of(file), gpu)
    return read(file, gpu)


def _nearest(rows: Sequence[MeasuredOperator], gpu: Gpu) -> OperatorTable:
    return OperatorTable(surfaces={}, nearest=Nearest(rows, gpu))


def _note_machines(file: Path, machines: Sequence[str], gpu: Gpu) -> None:
    """Warn if operators were measured on other GPUs than the predicted one."""
    own = set(_MODEL.findall(gpu.name.upper()))
    others = [name for name in machines if own and (found := _MODEL.findall(name.upper())) and not own & set(found)]
    if others:
        sentence = f"{file}: operators of {', '.join(others)}, where predictions are of {gpu.name}"
        warnings.warn(sentence, Note, stacklevel=2)


def _is_trace(file: Path) -> bool:
    return file.is_file() and file.suffix != _TABLE


def _rows_of_trace(file: Path) -> tuple[list[MeasuredOperator], Origin]:
    """Return the operators of a profiler's trace, and their origin."""
    from reports.errors import ReportError  # noqa: PLC0415 - loads pandas and torch, which other tables do without
    from reports.trace_table import table_rows  # noqa: PLC0415

    try:
        rows, origin, notes = table_rows([file])
    except ReportError as error:
        raise ScenarioError(str(error).splitlines()) from None
    for note in notes:
        warnings.warn(note, Note, stacklevel=2)
    return rows, origin

"""Tables of measured operators as Parquet files: written by calibrations and from profiler traces, read to be priced.

A file has a row for each `MeasuredOperator`: `operations` (JSON, `scenarios.seam.operations.as_json.text_of`),
`us`, `calls`, `is_cold`, and for readers `operator` and `shapes` in words, `machine`, `date` and `source`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.operations.as_json import operations_of, text_of
from scenarios.seam.operations.operation import words

# Has descriptions; a grid of shapes (`sim.operators.tables`) lacks this column.
OPERATIONS = "operations"
_SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("shapes", pa.string()),
        ("us", pa.float64()),
        ("calls", pa.int64()),
        ("is_cold", pa.bool_()),
        ("machine", pa.string()),
        ("date", pa.string()),
        ("source", pa.string()),
        (OPERATIONS, pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a table's rows: the GPU's name, the date of the measurement, and the tool that measured."""

    machine: str
    date: str
    source: str


def write_table(file: Path, rows: Iterable[MeasuredOperator], origin: Origin) -> None:
    """Write a table, in place of an older file of that name.

    Raises:
        OSError: the file cannot be written.
    """
    cells = [_cells(row, origin) for row in rows]
    pq.write_table(pa.Table.from_pylist(cells, schema=_SCHEMA), file, compression="zstd")


def read_table(file: Path) -> tuple[MeasuredOperator, ...]:
    """Return the rows of a table.

    Raises:
        OSError, pyarrow.ArrowException: the file is no Parquet.
        KeyError, TypeError, ValueError: a column is missing, or a description is invalid.
    """
    table = pq.read_table(file, columns=[OPERATIONS, "us", "calls", "is_cold"])
    columns = (table[name].to_pylist() for name in table.column_names)
    return tuple(_row(*cells) for cells in zip(*columns, strict=True))


def _cells(row: MeasuredOperator, origin: Origin) -> dict[str, object]:
    described = [words(each) for each in row.operations]
    return {
        "operator": " + ".join(name for name, _ in described),
        "shapes": "; ".join(shapes for _, shapes in described),
        "us": row.us,
        "calls": row.calls,
        "is_cold": row.is_cold,
        "machine": origin.machine,
        "date": origin.date,
        "source": origin.source,
        OPERATIONS: text_of(row.operations),
    }


def _row(operations: str, us: float, calls: int, is_cold: bool) -> MeasuredOperator:
    if not us > 0:
        raise ValueError(f"us = {us}: expected a time above 0")
    return MeasuredOperator(operations=operations_of(operations), us=us, calls=calls, is_cold=is_cold)

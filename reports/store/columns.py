"""Rows of the trace as columns: Arrow schemas, tables and frames with fixed dtypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from reports.store.roles_by_label import BY_LABEL
from scenarios.seam.trace import (
    ChangeRow,
    KernelRow,
    LayerRow,
    LinkRow,
    LoadRow,
    MemoryRow,
    Metric,
    OperatorRow,
    PlanRow,
    Span,
    TrafficRow,
)

TABLES: dict[str, type] = {
    "spans": Span,
    "metrics": Metric,
    "plan": PlanRow,
    "own_plan": PlanRow,
    "memory": MemoryRow,
    "links": LinkRow,
    "loads": LoadRow,
    "traffic": TrafficRow,
    "kernels": KernelRow,
    "operators": OperatorRow,
    "layers": LayerRow,
    "what_if": ChangeRow,
}

# Tables that earlier releases did not write, and columns with a default that they did.
LATER_TABLES = frozenset({"loads", "traffic", "own_plan", "what_if", "kernels", "operators", "layers"})
_ALWAYS = {f"bytes_{name}" for name in ("read", "written", "in", "out", "sent")}
_ALWAYS |= {"rank_count", "kernel", "dtype", "flops"}

# Several decades in ns: sums over ranks, and values beyond them, still fit 64 bits.
_LARGEST = 1 << 61
# Pairs of columns whose first is never above the second.
_ORDERED = (
    ("issued_ns", "start_ns"),
    ("start_ns", "end_ns"),
    ("wait_from_ns", "wait_until_ns"),
    ("from_ns", "until_ns"),
)

# pandas 3 reads text as `str`; pandas 2.2 has an equal dtype under this name.
TEXT: Any = "str" if int(pd.__version__.split(".")[0]) >= 3 else "string[pyarrow_numpy]"

_ARROW = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}
_PANDAS: dict[str, Any] = {"int": "int64", "float": "float64", "str": TEXT}


@cache
def schema_of(row_type: type) -> pa.Schema:
    """Return the stored columns of one row type: int64, float64 and string, none of them nullable."""
    return pa.schema([pa.field(name, _ARROW[kind], nullable=False) for name, kind in _fields(row_type)])


def to_arrow(rows: Sequence[object], row_type: type) -> pa.Table:
    """Return rows as an Arrow table in their order; Arrow refuses a fraction for an int, an assertion a None."""
    schema = schema_of(row_type)
    arrays = [_array(list(map(attrgetter(field.name), rows)), field.type) for field in schema]
    for field, array in zip(schema, arrays, strict=True):
        assert array.null_count == 0, f"{row_type.__name__}.{field.name} must not be None"
    return pa.Table.from_arrays(arrays, schema=schema)


def to_frame(table: pa.Table, row_type: type) -> pd.DataFrame:
    """Return an Arrow table of all or some columns as a frame with its row type's dtypes, in any pandas release."""
    frame: pd.DataFrame = table.to_pandas()
    read, wanted = dict(frame.dtypes), {name: _PANDAS[kind] for name, kind in _fields(row_type)}
    others = {name: dtype for name, dtype in wanted.items() if name in read and read[name] != dtype}
    return frame.astype(others) if others else frame  # `astype` of no column would copy them all


def mistake(frame: pd.DataFrame, row_type: type) -> str | None:
    """Return a sentence on a frame's first impossible value: below -1 ("none"), too large, or times in reverse."""
    for name, kind in _fields(row_type):
        if name in frame and len(frame) and kind != "str" and (row_type, name) != (Metric, "value"):
            column = frame[name].to_numpy()
            # Floats are bounded so that their sum over all rows cannot become infinite.
            least, most = (-1, _LARGEST) if kind == "int" else (0, np.finfo(np.float64).max / _LARGEST)
            # Not `<` or `>`: nan compares false with everything, and is wrong, too.
            wrong = ~((column >= least) & (column <= most))
            if wrong.any():
                return f"row {wrong.argmax()}: {name} = {column[wrong.argmax()]}: expected {least} to {most:,}"
    for first, later in _ORDERED:
        if first in frame and later in frame:
            until = frame[later].to_numpy()
            wrong = (frame[first].to_numpy() > until) & (until != -1)  # -1: the run ended before that moment
            if wrong.any():
                value, bound = frame[first].iloc[wrong.argmax()], frame[later].iloc[wrong.argmax()]
                return f"row {wrong.argmax()}: {first} = {value}: expected at most {later} = {bound}"
    return None


def required_columns(row_type: type) -> set[str]:
    """Return the columns that every release has written."""
    always = {field.name for field in dataclasses.fields(row_type) if field.default is dataclasses.MISSING}
    return always | _ALWAYS if row_type is Span else always


def complete_columns(table: pa.Table, row_type: type, names: Sequence[str]) -> pa.Table:
    """Return the table with those of `names` that its release did not know, filled with their defaults.

    What follows from labels is derived of a table that has `needed_columns`.
    """
    schema = schema_of(row_type)
    for name in _find_derived(table.schema.names, row_type, names):
        found = BY_LABEL[name].derive(table.select(BY_LABEL[name].columns).to_pandas())
        table = table.append_column(schema.field(name), pa.array(found, pa.string()))
    for field in dataclasses.fields(row_type):
        if field.name in names and field.name not in table.schema.names:
            column = schema.field(field.name)
            table = table.append_column(column, pa.repeat(pa.scalar(field.default, column.type), len(table)))
    return table


def needed_columns(written: Sequence[str], row_type: type, names: Sequence[str]) -> set[str]:
    """Return the columns from which those of `names` follow that were not `written`."""
    return {column for name in _find_derived(written, row_type, names) for column in BY_LABEL[name].columns}


def _find_derived(written: Sequence[str], row_type: type, names: Sequence[str]) -> list[str]:
    return [name for name in BY_LABEL if row_type is Span and name in names and name not in written]


def frame_of_columns(columns: Mapping[str, Any] | pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Return a frame of the columns of `kinds` ("int", "float", "str", "bool"), in that order, with those dtypes."""
    dtypes = {**_PANDAS, "bool": "bool"}
    return pd.DataFrame({name: _with_dtype(columns[name], dtypes[kinds[name]]) for name in kinds})


def frame_of_rows(rows: Iterable[Mapping[str, Any] | tuple[Any, ...]], kinds: Mapping[str, str]) -> pd.DataFrame:
    """Return a frame as `frame_of_columns` does of rows: dicts, or tuples in the order of `kinds`."""
    named = [dict(zip(kinds, row, strict=True)) if isinstance(row, tuple) else row for row in rows]
    return frame_of_columns({name: [row[name] for row in named] for name in kinds}, kinds)


def _with_dtype(column: Any, dtype: str) -> Any:
    """Return a column's values with a dtype, without its index; converting what has the dtype already is costly."""
    values = getattr(column, "array", column)
    return values if getattr(values, "dtype", None) == dtype else pd.Series(np.asarray(values), dtype=dtype)


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    # Arrow would cut 0.5 down to 0 if the type were given; the cast refuses.
    return pa.array(values).cast(kind) if pa.types.is_integer(kind) else pa.array(values, kind)


@cache
def _fields(row_type: type) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, str(field.type)) for field in dataclasses.fields(row_type))

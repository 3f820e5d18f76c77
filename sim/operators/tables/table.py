"""Reads a table of measured operators and says by which factor the nearest of them correct a law.

A table is Parquet with a row for each measurement: `operator` (`signature.COORDINATES`), the columns that describe it,
`us`, `machine`, `date`, `source`, and `over_law`, the measured time over the law's. `over_law` may be missing: it is
then computed when the table is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import Product, linear
from sim.operators.laws import seconds
from sim.operators.tables.signature import COORDINATES, FIXED, signature, surface_name
from sim.operators.tables.surface import Surface, surface

# The key of the file's metadata under which `Quality` stands.
QUALITY = b"quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A measure of how far the time of an operator is off: mean |predicted / measured - 1|.

    `law_error` is that of the law alone on all `measured` shapes, `table_error` that of law and table on those of them
    that are not in the table.
    """

    operator: str
    measured: int
    law_error: float
    table_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of `rows` measured operators; `machines` and `sources` say whose they are, `quality` how good it is."""

    rows: int
    machines: tuple[str, ...]
    sources: tuple[str, ...]
    surfaces: dict[str, Surface]
    quality: tuple[Quality, ...] = ()

    def factor(self, operation: object) -> float:
        """Return what a law's time of `operation` is to be multiplied by; 1 if nothing like it was measured."""
        placed = signature(operation)
        if placed is None or placed[0] not in self.surfaces:
            return 1.0
        name, place, shared = placed
        return math.exp(shared * self.surfaces[name].at(place))


def read(file: Path, gpu: Gpu) -> Table:
    """Read a table; `gpu` is that of the law where the table has no column `over_law`."""
    table = pq.read_table(file)
    read_surfaces: dict[str, Surface] = {}
    for operator in COORDINATES:
        rows = table.filter(pc.equal(table["operator"], operator))
        if rows.num_rows:
            read_surfaces |= surfaces_of(operator, rows, gpu)
    return Table(
        rows=table.num_rows,
        machines=_names(table, "machine"),
        sources=_names(table, "source"),
        surfaces=read_surfaces,
        quality=tuple(Quality(**each) for each in json.loads((table.schema.metadata or {}).get(QUALITY, b"[]"))),
    )


def _names(table: pa.Table, column: str) -> tuple[str, ...]:
    return tuple(sorted(map(str, table[column].unique().to_pylist()))) if column in table.column_names else ()


def surfaces_of(operator: str, rows: pa.Table, gpu: Gpu) -> dict[str, Surface]:
    """Return the surfaces of one operator: logarithms of measured times over the law's."""
    dtypes = pc.dictionary_encode(rows["dtype"].combine_chunks())
    sizes = [rows[column].to_numpy().astype(np.int64) for column in FIXED[operator][1:]]
    fixed = np.stack([np.asarray(dtypes.indices).astype(np.int64), *sizes], axis=1)
    coordinates = np.stack([rows[column].to_numpy().astype(np.int64) for column in COORDINATES[operator]], axis=1)
    if "over_law" in rows.column_names:
        ratios = rows["over_law"].to_numpy().astype(float)
    else:
        build = OPERATIONS[operator]
        ratios = np.array([row["us"] * 1e-6 / seconds(build(row), gpu) for row in rows.to_pylist()])
    found: dict[str, Surface] = {}
    kinds, kind_of = np.unique(fixed, axis=0, return_inverse=True)
    for number, (dtype, *others) in enumerate(kinds.tolist()):
        mine = kind_of.reshape(-1) == number
        name = surface_name(operator, (dtypes.dictionary[dtype].as_py(), *others))
        found[name] = surface(coordinates[mine], np.log(ratios[mine]))
    return found


def _linear(row: dict[str, object]) -> Product:
    return linear(_int(row, "rows"), _int(row, "inner"), _int(row, "columns"), str(row["dtype"]), element_bytes=2)


def _attention(row: dict[str, object]) -> Attention:
    return Attention(
        batch=_int(row, "batch"),
        heads=_int(row, "heads"),
        key_heads=_int(row, "key_heads"),
        queries=_int(row, "queries"),
        keys=_int(row, "queries"),
        head_size=_int(row, "head_size"),
        dtype=str(row["dtype"]),
        is_causal=row["operator"] == "prefill",
        window=_int(row, "window") or None,
        is_serving=True,
    )


def _int(row: dict[str, object], column: str) -> int:
    value = row[column]
    assert isinstance(value, int), f"{column} of a measured {row['operator']}: {value!r}"
    return value


# The operation of an operator's row.
OPERATIONS: dict[str, Callable[[dict[str, object]], Operation]] = {
    "linear": _linear,
    "prefill": _attention,
    "encoder": _attention,
}

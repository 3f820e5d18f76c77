"""Reads a table of measured operators and says by which factor the nearest of them correct a law.

A table is Parquet with a row for each measurement: `operator` (`signature.COORDINATES`), the columns that describe it,
`us`, `machine`, `date`, `source`, and `over_law`, the measured time over the law's. `over_law` may be missing: it is
then computed when the table is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.products import Product, linear
from sim.operators import attention, products
from sim.operators.tables.signature import COORDINATES, FIXED, signature, surface_name
from sim.operators.tables.surface import Surface, surfaces

_COLUMNS = ("rows", "columns", "inner", "batch", "heads", "key_heads", "queries", "head_size", "window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of `rows` measured operators; `machines` and `sources` say whose they are."""

    rows: int
    machines: tuple[str, ...]
    sources: tuple[str, ...]
    surfaces: dict[str, Surface]

    def factor(self, operation: object) -> float:
        """Return what a law's time of `operation` is to be multiplied by; 1 if nothing like it was measured."""
        placed = signature(operation)
        if placed is None or placed[0] not in self.surfaces:
            return 1.0
        name, place, shared = placed
        return math.exp(shared * self.surfaces[name].at(place))


def read(file: Path, gpu: Gpu) -> Table:
    """Read a table; `gpu` is that of the law where the table has no column `over_law`."""
    table = pq.read_table(file, memory_map=False)
    points: list[tuple[str, tuple[int, ...], float]] = []
    for operator in COORDINATES:
        points += _points(operator, table.filter(pa.compute.equal(table["operator"], operator)), gpu)
    return Table(
        rows=table.num_rows,
        machines=_names(table, "machine"),
        sources=_names(table, "source"),
        surfaces=surfaces(points),
    )


def _names(table: pa.Table, column: str) -> tuple[str, ...]:
    return tuple(sorted(map(str, table[column].unique().to_pylist()))) if column in table.column_names else ()


def _points(operator: str, rows: pa.Table, gpu: Gpu) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Yield surface, coordinates and logarithm of measured time over the law's, of the rows of one operator."""
    fixed = zip(*(rows[column].to_pylist() for column in FIXED[operator]), strict=True)
    places = zip(*(rows[column].to_pylist() for column in COORDINATES[operator]), strict=True)
    names = (surface_name(operator, values) for values in fixed)
    if "over_law" in rows.column_names:
        ratios = rows["over_law"].to_pylist()
    else:
        law, build = LAWS[operator]
        ratios = [row["us"] * 1e-6 / law(build(row), gpu) for row in rows.to_pylist()]
    yield from zip(names, places, map(math.log, ratios), strict=True)


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


# How the time of an operator's rows is computed: its law, and the operation of a row.
LAWS: dict[str, tuple[Callable[..., float], Callable[[dict[str, object]], object]]] = {
    "linear": (products.seconds, _linear),
    "prefill": (attention.seconds, _attention),
    "encoder": (attention.seconds, _attention),
}

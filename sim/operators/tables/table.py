"""Reads a table of measured operators, and corrects laws by its nearest measurements.

A table is Parquet with a row for each measurement. Rows describe any operator (`scenarios.kernel_tables.file`), or are
points of grids of shapes: `operator` (`signature.COORDINATES`), the columns that describe it, `us`, `machine`, `date`,
`source`, and `over_law`, the measured time over the law's. If `over_law` is missing, it is computed for each
measurement at its first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ArrowException

from scenarios.config.gpu import Gpu
from scenarios.kernel_tables.file import OPERATIONS as DESCRIPTIONS
from scenarios.kernel_tables.file import read_table
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import Product, linear
from sim.operators.laws import seconds
from sim.operators.tables.nearest import NONE, Correction, Nearest
from sim.operators.tables.signature import COORDINATES, FIXED, signature, surface_name
from sim.operators.tables.surface import Surface, Values, surface


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """A table of measured operators: grids by the name of their surface, or rows that describe any operator.

    A surface's values are logarithms of measured times over the law's.
    """

    surfaces: Mapping[str, Surface]
    nearest: Nearest | None = None

    def correction(self, operation: Operation) -> Correction:
        """Return the correction of a law's time of `operation`; `NONE` if nothing comparable was measured."""
        if self.nearest is not None:
            return self.nearest.correction(operation)
        placed = signature(operation)
        if placed is None:
            return NONE
        name, place, shared = placed
        found = self.surfaces.get(name)
        return NONE if found is None else Correction(shared * found.at(place), 1.0)


def correction(tables: Iterable[OperatorTable], operation: Operation) -> Correction:
    """Return the correction of a law's time by all tables; a table with weight w leaves 1 - w to those before it."""
    whole = NONE
    for table in tables:
        found = table.correction(operation)
        log_factor = found.log_factor + (1 - found.weight) * whole.log_factor
        weight = found.weight + (1 - found.weight) * whole.weight
        whole = Correction(log_factor, weight, found.is_measured or (whole.is_measured and not found.weight))
    return whole


def read(file: Path, gpu: Gpu) -> OperatorTable:
    """Read a table; `gpu` is that of the law if the table has no column `over_law`."""
    if DESCRIPTIONS in pq.read_schema(file).names:
        return OperatorTable(surfaces={}, nearest=Nearest(read_table(file), gpu))
    table = pq.read_table(file)
    found: dict[str, Surface] = {}
    for operator in COORDINATES:
        found |= surfaces_of(operator, table.filter(pc.equal(table["operator"], operator)), gpu)
    return OperatorTable(surfaces=found)


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn errors of reading `file` into a ScenarioError of one sentence."""
    try:
        yield
    except (OSError, ArrowException, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ScenarioError(
            f"{file}: cluster.gpu.kernel_table: expected Parquet with measured operators as `twinstep docs kernels`"
            f" says: {reason}"
        ) from None


class _Computed:
    """A sequence of logarithms of measured times over the law's, each computed at first use."""

    def __init__(self, operator: str, dtype: str, rows: pa.Table, gpu: Gpu) -> None:
        self._build = OPERATIONS[operator]
        self._known: dict[str, object] = {"operator": operator, "dtype": dtype}
        self._sizes = {name: _sizes(rows, name) for name in (*COORDINATES[operator], *FIXED[operator][1:])}
        self._us = rows["us"].to_numpy()
        self._gpu = gpu
        self._values: dict[int, float] = {}

    def __getitem__(self, place: int, /) -> float:
        value = self._values.get(place)
        if value is None:
            row = self._known | {name: sizes[place].item() for name, sizes in self._sizes.items()}
            value = math.log(self._us[place].item() * 1e-6 / seconds(self._build(row), self._gpu))
            self._values[place] = value
        return value


def surfaces_of(operator: str, rows: pa.Table, gpu: Gpu) -> dict[str, Surface]:
    """Return the surfaces of one operator: logarithms of measured times over the law's."""
    placed = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    kinds = placed.group_by(list(FIXED[operator]), use_threads=False).aggregate([("place", "list")])
    found: dict[str, Surface] = {}
    columns = [kinds[name].to_pylist() for name in FIXED[operator]]
    for places, dtype, *sizes in zip(kinds["place_list"], *columns, strict=True):
        mine = rows.take(places.values)
        coordinates = np.stack([_sizes(mine, name) for name in COORDINATES[operator]], axis=1)
        name = surface_name(operator, (dtype, *map(int, sizes)))
        found[name] = surface(coordinates, _values(operator, dtype, mine, gpu))
    return found


def _values(operator: str, dtype: str, rows: pa.Table, gpu: Gpu) -> Values:
    if "over_law" not in rows.column_names:
        return _Computed(operator, dtype, rows, gpu)
    known: list[float] = np.log(rows["over_law"].to_numpy().astype(float)).tolist()
    return known


def _sizes(rows: pa.Table, column: str) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = rows[column].to_numpy().astype(np.int64)
    return sizes


def _linear(row: dict[str, object]) -> Product:
    return linear(_int(row, "rows"), _int(row, "inner"), _int(row, "columns"), str(row["dtype"]), element_bytes=2)


def _attention(row: dict[str, object]) -> Attention:
    is_causal, heads = row["operator"] == "prefill", _int(row, "heads")
    return Attention(
        batch=_int(row, "batch"),
        heads=heads,
        key_heads=_int(row, "key_heads") if is_causal else heads,
        queries=_int(row, "queries"),
        keys=_int(row, "queries"),
        head_size=_int(row, "head_size"),
        dtype=str(row["dtype"]),
        is_causal=is_causal,
        window=(_int(row, "window") or None) if is_causal else None,
        is_serving=True,
    )


def _int(row: dict[str, object], column: str) -> int:
    value = row[column]
    assert isinstance(value, int), f"{column} of a measured {row['operator']}: {value!r}"
    return value


# Creates the operation that a row of an operator describes.
OPERATIONS: dict[str, Callable[[dict[str, object]], Operation]] = {
    "linear": _linear,
    "prefill": _attention,
    "encoder": _attention,
}

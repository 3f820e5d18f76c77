"""Describes a table of measured operators: its machines, its sources, and the errors of predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from scenarios.kernel_tables.file import Origin
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.operations.operation import words
from sim.operators.tables.signature import COORDINATES
from sim.operators.tables.table import OperatorTable
from sim.operators.tables.wheel import measured_medians

# The key of the file's metadata under which `Quality` stands.
QUALITY = b"quality"
_MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The errors of an operator's predicted time: means of |predicted / measured - 1|.

    `law_error` is that of the law alone on all measured shapes, `table_error` that of law and table on shapes that
    are not in the table. `is_whole`: the table has all shapes, and each is predicted from the others of its line, which
    differ in one size only.
    """

    operator: str
    measured: int
    law_error: float
    table_error: float
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """A description of a table: `rows` measured operators, `machines` and `sources` of measurements, `quality`."""

    rows: int
    machines: tuple[str, ...]
    sources: tuple[str, ...]
    quality: tuple[Quality, ...]


def about(file: Path, table: Callable[[], OperatorTable]) -> About:
    """Return the description of a table.

    Args:
        file: a Parquet file, or the folder of a measured system.
        table: returns the table's contents; called if the file does not state its quality.
    """
    if file.is_dir():
        rows = pa.concat_tables([measured_medians(file, operator) for operator in COORDINATES])
        sources: tuple[str, ...] = (source(_release()),)
    else:
        rows = pq.read_table(file)
        sources = _names(rows, "source")
    stored = (rows.schema.metadata or {}).get(QUALITY)
    return About(
        rows=rows.num_rows,
        machines=_names(rows, _MACHINE),
        sources=sources,
        quality=quality_of(table()) if stored is None else tuple(Quality(**each) for each in json.loads(stored)),
    )


def about_rows(rows: Sequence[MeasuredOperator], origin: Origin, table: OperatorTable) -> About:
    """Return the description of rows that are in no file; `table` is made of these rows."""
    return About(rows=len(rows), machines=(origin.machine,), sources=(origin.source,), quality=quality_of(table))


def machines_of(file: Path) -> tuple[str, ...]:
    """Return the names of the machines that measured a file's rows, empty if it has none."""
    return _names(pq.read_table(file, columns=[_MACHINE]), _MACHINE) if _MACHINE in pq.read_schema(file).names else ()


def _release() -> str:
    try:
        return version("aiconfigurator-core")
    except PackageNotFoundError:
        return "of an unknown version"


def source(release: str) -> str:
    """Return the value of column `source` for a release of the wheel."""
    return f"aiconfigurator-core {release} (NVIDIA, Apache-2.0), medians over its servers"


def quality_of(table: OperatorTable) -> tuple[Quality, ...]:
    """Return the quality by operator of a table that has all measurements."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for name, surface in table.surfaces.items():
        pairs.setdefault(name.split()[0], []).extend(surface.leave_one_out())
    for operation, value, others in table.nearest.leave_one_out() if table.nearest is not None else ():
        pairs.setdefault(words(operation)[0], []).append((value, others))
    return tuple(_quality(operator, *np.array(logs).T) for operator, logs in pairs.items())


def _quality(operator: str, values: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> Quality:
    return Quality(
        operator=operator,
        measured=len(values),
        law_error=_mean_error(-values),
        table_error=_mean_error(others - values),
        is_whole=True,
    )


def _mean_error(logs: npt.NDArray[np.float64]) -> float:
    return float(np.abs(np.expm1(logs)).mean())


def _names(table: pa.Table, column: str) -> tuple[str, ...]:
    return tuple(sorted(map(str, table[column].unique().to_pylist()))) if column in table.column_names else ()

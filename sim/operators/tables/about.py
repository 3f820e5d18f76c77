"""Says of a table of measured operators whose they are and how far predictions are off."""

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
from scenarios.seam.operations.words import words
from sim.operators.tables.signature import COORDINATES
from sim.operators.tables.table import Table
from sim.operators.tables.wheel import measured

# The key of the file's metadata under which `Quality` stands.
QUALITY = b"quality"
_MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How far the time of an operator is off: mean |predicted / measured - 1|.

    `law_error` is that of the law alone on all `measured` shapes, `table_error` that of law and table on those of them
    that are not in the table. `is_whole`: the table has them all, and each is predicted by the others of its line,
    which have the same sizes but one.
    """

    operator: str
    measured: int
    law_error: float
    table_error: float
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """A table of `rows` measured operators; `machines` and `sources` say whose they are, `quality` how good it is."""

    rows: int
    machines: tuple[str, ...]
    sources: tuple[str, ...]
    quality: tuple[Quality, ...]


def about(file: Path, table: Callable[[], Table]) -> About:
    """Return what is known of a table.

    Args:
        file: a Parquet file, or the folder of a measured system.
        table: returns what was read of it; called where the file does not say how good it is.
    """
    if file.is_dir():
        rows = pa.concat_tables([measured(file, operator) for operator in COORDINATES])
        sources: tuple[str, ...] = (source(_release()),)
    else:
        rows = pq.read_table(file)
        sources = _names(rows, "source")
    said = (rows.schema.metadata or {}).get(QUALITY)
    return About(
        rows=rows.num_rows,
        machines=_names(rows, _MACHINE),
        sources=sources,
        quality=quality_of(table()) if said is None else tuple(Quality(**each) for each in json.loads(said)),
    )


def about_rows(rows: Sequence[MeasuredOperator], origin: Origin, table: Table) -> About:
    """Return what is known of rows that are in no file; `table` is made of them."""
    return About(rows=len(rows), machines=(origin.machine,), sources=(origin.source,), quality=quality_of(table))


def machines_of(file: Path) -> tuple[str, ...]:
    """Return the names of the machines on which a file's rows were measured, as far as it says them."""
    return _names(pq.read_table(file, columns=[_MACHINE]), _MACHINE) if _MACHINE in pq.read_schema(file).names else ()


def _release() -> str:
    try:
        return version("aiconfigurator-core")
    except PackageNotFoundError:
        return "of an unknown version"


def source(release: str) -> str:
    """Return the column `source` of what a release of the wheel has measured."""
    return f"aiconfigurator-core {release} (NVIDIA, Apache-2.0), medians over its servers"


def quality_of(table: Table) -> tuple[Quality, ...]:
    """Return how good a table is that holds all that was measured, by operator."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for name, surface in table.surfaces.items():
        pairs.setdefault(name.split()[0], []).extend(surface.left_out())
    for operation, value, others in table.nearest.left_out() if table.nearest is not None else ():
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

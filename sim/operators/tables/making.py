"""Creates the tables that the project ships from the measurements in the wheel aiconfigurator-core (NVIDIA,
Apache-2.0).

A line of measurements varies one coordinate. A table keeps the measurements of a line from which the others can be
interpolated within `TOLERANCE`; only its ends where the law alone is that good.
"""

from __future__ import annotations

import math
from importlib.resources.abc import Traversable

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from scenarios.config.gpu import Gpu
from sim.operators.laws import seconds
from sim.operators.tables.about import Quality, source
from sim.operators.tables.signature import COORDINATES, FIXED, signature
from sim.operators.tables.table import OPERATIONS, surfaces_of
from sim.operators.tables.wheel import measured_medians

# Largest relative error of an interpolated time; a measurement with a larger one is kept.
TOLERANCE = 0.03


def table_of(system: Traversable, release: str, gpu: Gpu) -> tuple[pd.DataFrame, list[Quality]]:
    """Return the thinned table of a system in the wheel, in the columns of `table.read`, and its quality by operator.

    Quality compares the law alone, and the law with the table, with all measurements.

    Args:
        system: the system's folder in the wheel.
        release: the wheel's version.
        gpu: the GPU of the law.
    """
    kept, found = [], []
    for operator in COORDINATES:
        rows = measured_medians(system, operator).to_pandas()
        if rows.empty:
            continue
        priced = _price(operator, rows, gpu)
        thinned = _thin(operator, priced)
        kept.append(thinned)
        found.append(_quality(operator, priced, thinned, gpu))
    table = pd.concat(kept, ignore_index=True)
    table["source"] = source(release)
    table["date"] = "2026"
    return table, found


def _quality(operator: str, priced: pd.DataFrame, thinned: pd.DataFrame, gpu: Gpu) -> Quality:
    """Return the errors of the law on all rows, and of law and table on the rows that the table does not have."""
    surfaces = surfaces_of(operator, pa.Table.from_pandas(thinned), gpu)
    build = OPERATIONS[operator]
    others = priced.drop(thinned.index)
    errors = []
    for row in others.to_dict("records"):
        placed = signature(build({str(key): value for key, value in row.items()}))
        if placed is not None and placed[0] in surfaces:
            name, place, _ = placed
            errors.append(abs(math.exp(surfaces[name].at(place)) / row["over_law"] - 1))
    return Quality(
        operator=operator,
        measured=len(priced),
        law_error=float((1 / priced["over_law"] - 1).abs().mean()),
        table_error=float(np.mean(errors)) if errors else 0.0,
    )


def _price(operator: str, rows: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    build = OPERATIONS[operator]
    laws = [seconds(build({str(key): value for key, value in row.items()}), gpu) for row in rows.to_dict("records")]
    return rows.assign(over_law=rows["us"].to_numpy() * 1e-6 / np.array(laws)).reset_index(drop=True)


def _thin(operator: str, rows: pd.DataFrame) -> pd.DataFrame:
    *others, along = COORDINATES[operator]
    kept = [
        line.iloc[_points_to_keep(np.log2(line[along].to_numpy(float)), np.log(line["over_law"].to_numpy(float)))]
        for _, line in rows.sort_values(along).groupby([*FIXED[operator], *others], sort=True)
    ]
    return pd.concat(kept)


def _points_to_keep(places: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> list[int]:
    """Return the points of a line between which linear interpolation meets all others within `TOLERANCE`."""
    kept = sorted({0, len(places) - 1})
    while True:
        missed = np.abs(np.interp(places, places[kept], values[kept]) - values)
        worst = int(missed.argmax())
        if missed[worst] <= math.log1p(TOLERANCE):
            return kept
        kept = sorted({*kept, worst})

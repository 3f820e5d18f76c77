"""Makes the tables that the project ships from the measurements in the wheel aiconfigurator-core (NVIDIA, Apache-2.0).

Of each line of measurements (one coordinate varies) those are kept between which the others are interpolated within
`TOLERANCE`; where the law is that good by itself only its ends are.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from scenarios.config.gpu import Gpu
from sim.operators.laws import seconds
from sim.operators.tables.signature import COORDINATES, FIXED, signature
from sim.operators.tables.table import OPERATIONS, Quality, surfaces_of

# Share of a time by which an interpolated one may differ before the measurement is kept.
TOLERANCE = 0.03
_ROOT = "aiconfigurator_core/systems/data"
_NAMES = {"batch_size": "batch", "isl": "queries", "head_dim": "head_size", "attn_dtype": "dtype"}
_KEYS = ["dtype", "rows", "columns", "inner", "batch", "heads", "key_heads", "queries", "head_size", "window"]


def table_of(wheel: ZipFile, system: str, gpu: Gpu) -> tuple[pd.DataFrame, list[Quality]]:
    """Return the thinned table of one of the wheel's systems, in the columns that `table.read` knows.

    With it comes, by operator, how far the law alone and the law with the table are off on all that was measured.
    """
    kept, found = [], []
    for operator, rows in measured(wheel, system):
        priced = _priced(operator, rows, gpu)
        thinned = _thinned(operator, priced)
        kept.append(thinned)
        found.append(_quality(operator, priced, thinned, gpu))
    table = pd.concat(kept, ignore_index=True)
    version = Path(str(wheel.filename)).name.split("-")[1]
    table["source"] = f"aiconfigurator-core {version} (NVIDIA, Apache-2.0), medians over its servers"
    table["date"] = "2026"
    return table, found


def _quality(operator: str, priced: pd.DataFrame, thinned: pd.DataFrame, gpu: Gpu) -> Quality:
    """Compare the law, and the law with the table, with all rows; the table with those that it does not hold."""
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


def measured(wheel: ZipFile, system: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the operators that the wheel has of a system in bfloat16, with the median of what its servers measured."""
    for operator, folder, names in (
        ("linear", "gemm", {"m": "rows", "n": "columns", "k": "inner", "gemm_dtype": "dtype"}),
        ("prefill", "attention", {"num_heads": "heads", "num_key_value_heads": "key_heads", "window_size": "window"}),
        ("encoder", "encoder_attention", {"num_heads": "heads"}),
    ):
        files = [
            name
            for name in wheel.namelist()
            if name.startswith(f"{_ROOT}/{system}/{folder}/") and name.endswith(".parquet") and "generation" not in name
        ]
        if not files:
            continue
        rows = pd.concat([pd.read_parquet(io.BytesIO(wheel.read(name))) for name in files])
        rows = rows.rename(columns={**_NAMES, **names})
        rows = rows[rows["dtype"] == "bfloat16"]
        if "kv_cache_dtype" in rows:
            rows = rows[rows["kv_cache_dtype"] == "bfloat16"]
        if operator == "encoder":
            rows = rows.assign(key_heads=rows["heads"])
        rows = rows.assign(**{key: rows[key].fillna(0).astype(int) if key in rows else 0 for key in _KEYS[1:]})
        medians = rows.groupby([*_KEYS, "device"], sort=True)["latency"].median().reset_index()
        medians = medians.rename(columns={"device": "machine"}).assign(operator=operator, us=medians["latency"] * 1e3)
        yield operator, medians.drop(columns="latency")


def _priced(operator: str, rows: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    build = OPERATIONS[operator]
    laws = [seconds(build({str(key): value for key, value in row.items()}), gpu) for row in rows.to_dict("records")]
    return rows.assign(over_law=rows["us"].to_numpy() * 1e-6 / np.array(laws)).reset_index(drop=True)


def _thinned(operator: str, rows: pd.DataFrame) -> pd.DataFrame:
    *others, along = COORDINATES[operator]
    kept = [
        line.iloc[_kept(np.log2(line[along].to_numpy(float)), np.log(line["over_law"].to_numpy(float)))]
        for _, line in rows.sort_values(along).groupby([*FIXED[operator], *others], sort=True)
    ]
    return pd.concat(kept)


def _kept(places: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> list[int]:
    """Return the points of a line from which linear interpolation meets all others within `TOLERANCE`."""
    kept = sorted({0, len(places) - 1})
    while True:
        missed = np.abs(np.interp(places, places[kept], values[kept]) - values)
        worst = int(missed.argmax())
        if missed[worst] <= math.log1p(TOLERANCE):
            return kept
        kept = sorted({*kept, worst})

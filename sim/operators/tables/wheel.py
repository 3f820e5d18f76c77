"""Reads the measurements of aiconfigurator-core (NVIDIA, Apache-2.0) from its wheel, or from its installed package.

A shape that was measured on several servers counts with its median. Files of a family of operators are read when one of
the family is first looked up.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scenarios.config.gpu import Gpu
from sim.operators.tables.signature import COORDINATES
from sim.operators.tables.surface import Surface
from sim.operators.tables.table import reading, surfaces_of

# 8-bit products are left out: they run scaling kernels, which differ from server to server.
DTYPE = "bfloat16"
# Folder of the systems in the wheel.
DATA = "aiconfigurator_core/systems/data"
# A table's columns of sizes; 0 where an operator has none.
SIZES = ("rows", "columns", "inner", "batch", "heads", "key_heads", "queries", "head_size", "window")
_ATTENTION = {"heads": "num_heads", "batch": "batch_size", "queries": "isl", "head_size": "head_dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _WheelFamily:
    """An operator's folder in the wheel, the columns that must equal `DTYPE`, and the wheel's columns of its sizes."""

    folder: str
    dtypes: tuple[str, ...]
    sizes: Mapping[str, str]


_FAMILIES = {
    "linear": _WheelFamily(folder="gemm", dtypes=("gemm_dtype",), sizes={"rows": "m", "columns": "n", "inner": "k"}),
    "prefill": _WheelFamily(
        folder="attention",
        dtypes=("attn_dtype", "kv_cache_dtype"),
        sizes={**_ATTENTION, "key_heads": "num_key_value_heads", "window": "window_size"},
    ),
    "encoder": _WheelFamily(
        folder="encoder_attention", dtypes=("attn_dtype",), sizes={**_ATTENTION, "key_heads": "num_heads"}
    ),
}


def measured_medians(system: Traversable, operator: str) -> pa.Table:
    """Return the medians of an operator's times in the folder of one system, by shape and machine.

    Columns are those of docs/explanation/kernels.md but `over_law`, `date` and `source`; rows are sorted by `SIZES`.
    """
    family = _FAMILIES[operator]
    sizes = [name for name in SIZES if name in family.sizes]
    empty = pa.schema([("us", pa.float64()), ("machine", pa.string()), *((name, pa.int64()) for name in sizes)])
    rows = pa.concat_tables(
        [empty.empty_table(), *(_rows(file, family, empty) for file in _files(system / family.folder))]
    )
    machines = pc.dictionary_encode(rows["machine"].combine_chunks())
    keys = [rows[name].to_numpy() for name in sizes] + [np.asarray(machines.indices)]
    times = rows["us"].to_numpy()
    order = np.lexsort([times, *keys[::-1]])
    keys, times = [key[order] for key in keys], times[order]
    is_first = np.logical_or.reduce([np.append(True, key[1:] != key[:-1]) for key in keys])
    starts = np.flatnonzero(is_first[: len(times)])
    past = np.append(starts[1:], len(times))[: len(starts)]
    none = pa.repeat(0, len(starts))
    return pa.table(
        {
            "operator": pa.repeat(operator, len(starts)),
            "dtype": pa.repeat(DTYPE, len(starts)),
            **dict.fromkeys(SIZES, none),
            **{name: key[starts] for name, key in zip(sizes, keys, strict=False)},
            "us": (times[(starts + past - 1) // 2] + times[(starts + past) // 2]) / 2,
            "machine": machines.dictionary.take(pa.array(keys[-1][starts])),
        }
    )


def _files(folder: Traversable) -> Iterator[Traversable]:
    """Yield the Parquet files below a folder, except those of decoding; none if there is no such folder."""
    if not folder.is_dir():
        return
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each)
        elif each.name.endswith(".parquet") and "generation" not in each.name:
            yield each


def _rows(file: Traversable, family: _WheelFamily, schema: pa.Schema) -> pa.Table:
    """Return one file's rows of `DTYPE` in the columns of `schema`; a size that the file does not have is 0."""
    opened = pq.ParquetFile(io.BytesIO(file.read_bytes()))
    there = set(opened.schema_arrow.names)
    dtypes = [name for name in family.dtypes if name in there]
    sizes = {name: theirs for name, theirs in family.sizes.items() if theirs in there}
    rows = opened.read([*{*sizes.values()}, *dtypes, "device", "latency"])
    for name in dtypes:
        rows = rows.filter(pc.equal(rows[name], DTYPE))
    columns = dict.fromkeys(family.sizes, pa.repeat(0, rows.num_rows))
    columns |= {name: pc.fill_null(rows[theirs], 0) for name, theirs in sizes.items()}
    columns |= {"us": pc.multiply(rows["latency"], 1e3), "machine": rows["device"]}
    return pa.table(columns).select(schema.names).cast(schema)


class MeasuredSystem(Mapping[str, Surface]):
    """The surfaces of all measurements on one system, whose folder is installed; read by families."""

    def __init__(self, system: Path, gpu: Gpu) -> None:
        self._system, self._gpu = system, gpu
        self._families: dict[str, dict[str, Surface]] = {}

    def __getitem__(self, name: str) -> Surface:
        operator, dtype, *_ = name.split()
        if dtype != DTYPE:
            raise KeyError(name)
        return self._family(operator)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for operator in COORDINATES for name in self._family(operator))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _family(self, operator: str) -> dict[str, Surface]:
        found = self._families.get(operator)
        if found is None:
            with reading(self._system):
                found = surfaces_of(operator, measured_medians(self._system, operator), self._gpu)
            self._families[operator] = found
        return found

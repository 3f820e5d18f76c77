"""Run folders: written whole or not at all, never over an existing one, and read back as a `Run`.

A folder holds run.json, one Parquet file a table and trace.json for Perfetto. What the columns mean is left to
scenarios.trace, what follows from them to `frames`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reports import perfetto
from reports.columns import TABLES, schema_of, to_arrow, to_frame
from reports.errors import ReportError
from reports.intervals import Ints
from reports.run import Run
from scenarios.trace import SCHEMA_VERSION, Recording, RunInfo

RUN_FILE = "run.json"
TRACE_FILE = "trace.json"

# Fields of run.json that earlier releases did not write.
_LATER = frozenset({"played_on"})

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "dict[str, Any]": (dict,),
    "dict[str, str]": (dict,),
    "tuple[str, ...]": (list,),
}


def write(recording: Recording, folder: Path | str) -> Path:
    """Writes a run folder and returns its path. Equal spans give equal bytes of spans.parquet, in whatever order.

    Raises:
        ReportError: the folder exists already, or the disk refuses.
    """
    tables = {name: to_arrow(getattr(recording, name), row_type) for name, row_type in TABLES.items()}
    tables["spans"] = _in_order(tables["spans"])
    with whole_folder(Path(folder)) as partial:
        for name, table in tables.items():
            # Nothing in the file may depend on the moment or the machine.
            pq.write_table(table, partial / f"{name}.parquet", compression="zstd", store_schema=False)
        with (partial / TRACE_FILE).open("w", encoding="utf-8") as stream:
            perfetto.write(to_frame(tables["spans"], TABLES["spans"]), recording.info, stream)
        text = json.dumps(dataclasses.asdict(recording.info), indent=2, ensure_ascii=False)
        (partial / RUN_FILE).write_text(text + "\n", encoding="utf-8")
    return Path(folder)


def fresh_folder(base: Path | str, name: str, now: datetime | None = None) -> Path:
    """A folder name under `base` that is free: the name, the time to the second and, if need be, a number."""
    stem = f"{folder_name(name)}-{(now or datetime.now()).strftime('%Y%m%d-%H%M%S')}"
    candidate, number = Path(base) / stem, 2
    while os.path.lexists(candidate):
        candidate, number = Path(base) / f"{stem}-{number}", number + 1
    return candidate


def folder_name(name: str) -> str:
    """A run's name without what does not belong into a folder's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


def load(folder: Path | str) -> Run:
    """The run in a folder.

    Raises:
        ReportError: it is missing, not a run folder, damaged, or written by a newer release.
    """
    folder = Path(folder)
    info = _load_info(folder)
    stored = {name: _load_table(folder / f"{name}.parquet", row_type) for name, row_type in TABLES.items()}
    return Run(info, stored)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A hidden sibling to fill, which becomes `folder` at the end, synced to disk; an error leaves nothing behind.

    Raises:
        ReportError: `folder` exists already, or an OSError came up.
    """
    _refuse_taken(folder)
    partial = _partial(folder)
    try:
        partial.mkdir(parents=True)
        yield partial
        _sync(partial)
        partial.rename(folder)
        _sync_one(folder.parent)
    except OSError as error:
        raise ReportError(f"{folder}: could not be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_free(folder: Path) -> None:
    """Before long work: whether `write` will be able to make this folder at its end.

    Raises:
        ReportError: it exists already, or nothing can be made there.
    """
    _refuse_taken(folder)
    partial = _partial(folder)
    try:
        partial.mkdir(parents=True)
        partial.rmdir()
    except OSError as error:
        raise ReportError(f"{folder}: could not be written: {error.strerror or error}") from error


def _refuse_taken(folder: Path) -> None:
    if os.path.lexists(folder):
        raise ReportError(f"{folder}: exists already; nothing is ever overwritten, give another folder")


def _partial(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.{secrets.token_hex(4)}.partial"


def _sync(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        _sync_one(path)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _in_order(spans: pa.Table) -> pa.Table:
    """Spans by rank, then as issued, so that how ranks were gathered does not show in the bytes."""
    names = ["sequence", "stream", "kind", "issued_ns", "rank"]  # the last is the first key of lexsort
    keys = [_sortable(spans[name].combine_chunks()) for name in names]
    return spans.take(pa.array(np.lexsort(keys)))


def _sortable(column: pa.Array) -> Ints:
    """Numbers that sort as the column does; text by the order of its few different values."""
    if not pa.types.is_string(column.type):
        return np.asarray(column, np.int64)
    encoded = column.dictionary_encode()
    places: Ints = np.argsort(np.argsort(np.array(encoded.dictionary.to_pylist(), dtype=str)))
    indices: Ints = np.asarray(encoded.indices, np.int64)
    return places[indices]


def _load_info(folder: Path) -> RunInfo:
    path = folder / RUN_FILE
    if not folder.exists():
        raise ReportError(f"{folder}: no such run folder")
    if not path.is_file():
        raise ReportError(f"{folder}: not a run folder: it has no {RUN_FILE}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: could not be read: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path}: not JSON: {error}") from error
    return _checked_info(path, content)


def _checked_info(path: Path, content: Any) -> RunInfo:
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise ReportError(f"{path}: not written by this project: it has no schema_version")
    if version > SCHEMA_VERSION:
        raise ReportError(f"{path}: schema_version = {version}: this release reads up to {SCHEMA_VERSION}")
    fields = {field.name: str(field.type) for field in dataclasses.fields(RunInfo)}
    missing = [name for name in fields if name not in content and name not in _LATER]
    if missing:
        raise ReportError(f"{path}: damaged: no {', '.join(missing)}")
    for name, kind in fields.items():
        if name in content and not isinstance(content[name], _JSON_TYPES[kind]):
            raise ReportError(f"{path}: {name} = {content[name]!r}: expected {kind}")
    if content["world_size"] < 1:
        raise ReportError(f"{path}: world_size = {content['world_size']}: expected at least 1")
    known = {name: content[name] for name in fields if name in content}
    return RunInfo(**{**known, "hosts": tuple(content["hosts"])})


def _load_table(path: Path, row_type: type) -> pd.DataFrame:
    schema = schema_of(row_type)
    if not path.is_file():
        raise ReportError(f"{path.parent}: damaged: it has no {path.name}")
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        first_line = str(error).splitlines()[0].rstrip(".")
        raise ReportError(f"{path}: not a readable Parquet file: {first_line}") from error
    wrong = [field.name for field in schema if field.name not in table.schema.names]
    wrong += [
        field.name for field in schema if field.name not in wrong and table.schema.field(field.name).type != field.type
    ]
    if wrong:
        raise ReportError(f"{path}: column {wrong[0]} is missing or not {schema.field(wrong[0]).type}")
    return to_frame(table.select(schema.names), row_type)

"""Run folders: written whole or not at all, never over an existing one, and read back as a `Run`.

A folder holds run.json, one Parquet file per table, and files that a caller derives from them. `scenarios.seam.trace`
defines the columns.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reports.analysis.intervals import Ints
from reports.errors import ReportError
from reports.run import Run
from reports.store.columns import (
    LATER_TABLES,
    TABLES,
    complete_columns,
    required_columns,
    schema_of,
    to_arrow,
    to_frame,
)
from reports.store.drafts import SPANS_FILE, refuse_name, whole_folder
from reports.store.json_file import read_json
from reports.store.parts import PART_ROWS, VERIFIED, Spans, SpansInFile, SpansInMemory, check_frame, unreadable
from reports.store.replace import replace_file
from scenarios.seam.trace import SCHEMA_VERSION, Advice, ChangeRow, OperatorRow, Recording, RunInfo, Span, Thinned

R = TypeVar("R")

RUN_FILE = "run.json"
OPERATORS_FILE = "operators.parquet"
SOURCES = "sources"  # a folder: the files of a user's own program

# Some 2 MB of a file, 20 MB in memory: the least that a reader takes of a run.
GROUP_ROWS = 1 << 16

# Adds files that follow from the recording to a draft folder, once its spans are written.
Derive = Callable[[Path, Recording], None]

# No file may depend on the moment or the machine; readers are to notice flipped bits (`parts.VERIFIED`).
_PARQUET: dict[str, Any] = {"compression": "zstd", "store_schema": False, "write_page_checksum": True}

# Fields of run.json that list texts, and what each text is.
_TEXTS = {"hosts": "names", "devices": "names", "plan_notes": "sentences", "left_out": "words", "on_cpu": "words"}

# The limit for a table that is read as a whole.
_MOST_TABLE_BYTES = 4 << 30

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "dict": (dict,), "tuple": (list,),
    "Thinned | None": (dict, type(None)),
}  # fmt: skip


def write(recording: Recording, folder: Path | str, derive: Derive | None = None, drafts: Path | None = None) -> Path:
    """Write a run folder and return its path; equal spans give equal bytes of spans.parquet, whatever their order.

    Raises:
        ReportError: the folder exists already, or the disk refuses.
    """
    with writing(Path(folder), derive, drafts) as written:
        written.add(recording.spans)
        written.finish(recording)
    return Path(folder)


@contextmanager
def writing(folder: Path, derive: Derive | None = None, drafts: Path | None = None) -> Iterator[Writing]:
    """Yield the writer of a draft run folder, which `finish` must complete before the end.

    Raises:
        ReportError: as `write` does.
    """
    with whole_folder(folder, drafts) as partial:
        written = Writing(partial, derive)
        try:
            yield written
        finally:
            written.close()


class Writing:
    """A writer of a run's spans, a part of whole steps at a time; at most a row group of them is in memory.

    A part's rows are sorted by step, rank and issue, spans outside of steps last. If the parts come in that order, the
    file is sorted, too, and has equal bytes however the run was cut into parts.
    """

    def __init__(self, partial: Path, derive: Derive | None) -> None:
        self._partial, self._derive = partial, derive
        self._held: list[Span] = []
        self._left = schema_of(Span).empty_table()
        self._file = pq.ParquetWriter(partial / SPANS_FILE, self._left.schema, **_PARQUET)

    def add(self, spans: Sequence[Span]) -> None:
        """Add further spans, in any order."""
        self._held.extend(spans)
        if len(self._held) >= GROUP_ROWS:
            self._write(is_last=False)

    def finish(self, recording: Recording) -> None:
        """Write all other files of the run after its last span; spans in the recording are ignored."""
        self._write(is_last=True)
        self.close()
        for name, kind in TABLES.items():
            if name != "spans":
                table = to_arrow(getattr(recording, name), kind)
                pq.write_table(table, self._partial / f"{name}.parquet", **_PARQUET)
        for name, text in recording.sources.items():
            source = self._partial / SOURCES / name
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text, encoding="utf-8")
        for name, content in recording.kept.items():
            (self._partial / name).write_bytes(content)
        if self._derive is not None:
            self._derive(self._partial, recording)
        text = json.dumps(dataclasses.asdict(recording.info), indent=2, ensure_ascii=False)
        # Last: a folder without run.json is recognised as no run.
        (self._partial / RUN_FILE).write_text(text + "\n", encoding="utf-8")

    def close(self) -> None:
        """Close the file of spans."""
        self._file.close()

    def _write(self, *, is_last: bool) -> None:
        held, self._held = self._held, []
        table = pa.concat_tables([self._left, _in_order(to_arrow(held, Span))]).combine_chunks()
        # Whole row groups only, so that the bytes of the file do not depend on how the run was cut into parts.
        whole = len(table) if is_last else len(table) // GROUP_ROWS * GROUP_ROWS
        if whole:
            self._file.write_table(table.slice(0, whole), row_group_size=GROUP_ROWS)
        self._left = table.slice(whole)


def changes_in(folder: Path) -> list[ChangeRow]:
    """Return the predicted what-if changes in a run's folder.

    Raises:
        ReportError: the file is damaged.
    """
    return _load_rows(folder / "what_if.parquet", ChangeRow)


def operators_in(folder: Path) -> list[OperatorRow]:
    """Return the operators of a run that its folder describes.

    Raises:
        ReportError: as `load` does.
    """
    _load_info(folder)
    return _load_rows(folder / OPERATORS_FILE, OperatorRow)


def add_changes(folder: Path, rows: Sequence[ChangeRow]) -> None:
    """Write what-if changes into a run's folder, in place of existing ones.

    Raises:
        ReportError: the disk refuses.
    """
    with replace_file(folder / "what_if.parquet") as draft:
        pq.write_table(to_arrow(rows, ChangeRow), draft, **_PARQUET)


def fresh_folder(base: Path | str, name: str, now: datetime | None = None) -> Path:
    """Return a free folder name under `base`: the name, the time to the second and, if needed, a number."""
    stem = f"{folder_name(name)}-{(now or datetime.now()).strftime('%Y%m%d-%H%M%S')}"
    candidate, number = Path(base) / stem, 2
    while os.path.lexists(candidate):
        candidate, number = Path(base) / f"{stem}-{number}", number + 1
    return candidate


def folder_name(name: str) -> str:
    """Return a run's name with only the characters that folder names may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


def load(folder: Path | str) -> Run:
    """Return the run in a folder; spans of a large run are read when they are used, so the folder must stay.

    Raises:
        ReportError: it is missing, not a run folder, damaged, or written by a newer release.
    """
    folder = Path(folder)
    refuse_name(folder)
    info = _load_info(folder)
    others = {name: kind for name, kind in TABLES.items() if name != "spans"}
    stored = {name: _load_table(folder / f"{name}.parquet", kind) for name, kind in others.items()}
    return Run(info, stored, load_spans(folder, PART_ROWS))


def _in_order(spans: pa.Table) -> pa.Table:
    """Sort spans by step and rank, then as issued, so that the bytes do not depend on how ranks were gathered."""
    names = ["sequence", "stream", "kind", "issued_ns", "rank", "step"]  # lexsort's primary key is the last
    keys = [_sortable(spans[name].combine_chunks()) for name in names]
    is_outside = keys[-1] < 0
    return spans.take(pa.array(np.lexsort([*keys, is_outside])))


def _sortable(column: pa.Array) -> Ints:
    """Return numbers that sort as the column does; text by the order of its few distinct values."""
    if not pa.types.is_string(column.type):
        return np.asarray(column, np.int64)
    encoded = column.dictionary_encode()
    places: Ints = np.argsort(np.argsort(np.array(encoded.dictionary.to_pylist(), dtype=str)))
    indices: Ints = np.asarray(encoded.indices, np.int64)
    return places[indices]


def _of_plan(folder: Path) -> str:
    """Return what to do with the folder of `twinstep plan`; "" for others."""
    plan, page = folder / "plan.json", folder / "plan.html"
    if not (plan.is_file() and page.is_file()):
        return ""
    predict = f"'twinstep predict SCENARIO --set sharding.plan={plan}' predicts a run with the plan"
    return f"; 'twinstep plan' wrote it: its page is {page}, and {predict}"


def _load_info(folder: Path) -> RunInfo:
    path = folder / RUN_FILE
    if not folder.exists():
        raise ReportError(f"{folder}: no such run folder")
    if not path.is_file():
        raise ReportError(f"{folder}: not a run folder: it has no {RUN_FILE}{_of_plan(folder)}")
    return _checked_info(path, read_json(path))


def _checked_info(path: Path, content: Any) -> RunInfo:
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise ReportError(f"{path}: not written by this project: it has no schema_version")
    if version > SCHEMA_VERSION:
        raise ReportError(f"{path}: schema_version = {version}: this release reads up to {SCHEMA_VERSION}")
    fields = {field.name: field for field in dataclasses.fields(RunInfo)}
    # Earlier releases did not write all fields that have a default.
    missing = [name for name, field in fields.items() if name not in content and field.default is dataclasses.MISSING]
    if missing:
        raise ReportError(f"{path}: damaged: no {', '.join(missing)}")
    for name, kind in ((name, str(field.type)) for name, field in fields.items() if name in content):
        if not isinstance(content[name], _JSON_TYPES[kind.partition("[")[0]]):
            raise ReportError(f"{path}: {name} = {content[name]!r}: expected {kind}")
    for name, what in _TEXTS.items():
        if not all(isinstance(one, str) for one in content.get(name, ())):
            raise ReportError(f"{path}: {name} = {content[name]!r}: expected {what}")
    for name in ("library", "payload", "fidelity"):
        if not isinstance(word := content["scenario"].get(name, ""), str):
            raise ReportError(f"{path}: scenario.{name} = {word!r}: expected a word")
    _check_cluster(path, content["scenario"])
    if content["world_size"] < 1:
        raise ReportError(f"{path}: world_size = {content['world_size']}: expected at least 1")
    known = {name: content[name] for name in fields if name in content}
    tuples = {
        **{name: tuple(content.get(name, ())) for name in _TEXTS},
        "advice": tuple(_advice(path, one) for one in content.get("advice", ())),
        "thinned": _read_thinned(path, content.get("thinned")),
        "host_counts": _host_counts(path, content.get("host_counts", [])),
        "rank_classes": _rank_classes(path, content.get("rank_classes", [])),
    }
    return RunInfo(**{**known, **tuples})


def _check_cluster(path: Path, scenario: dict[str, Any]) -> None:
    """Check the kinds of a cluster's parts, which reports look into; a part may be absent."""
    # Each table after the one that it lies in.
    for name in ("cluster", "cluster.host", "cluster.host.gpu", "cluster.network", "cluster.faults"):
        *parents, last = name.split(".")
        table = scenario
        for each in parents:
            table = table.get(each, {})
        kind, words = (list, "a list") if last == "faults" else (dict, "a table")
        if not isinstance(table.get(last, kind()), kind):
            raise ReportError(f"{path}: scenario.{name} = {table[last]!r}: expected {words}")
    for fault in scenario.get("cluster", {}).get("faults", ()):
        if not _is_fault(fault):
            raise ReportError(f"{path}: scenario.cluster.faults: {fault!r}: expected part, speed, begin_ns and end_ns")


def _is_fault(content: Any) -> bool:
    if not (isinstance(content, dict) and content.keys() >= {"part", "speed", "begin_ns", "end_ns"}):
        return False
    part, end_ns = content["part"], content["end_ns"]
    is_part = isinstance(part, dict) and set(part) in ({"leaf"}, {"host", "gpu"}, {"host", "nic"})
    numbers = content["speed"], content["begin_ns"], 0 if end_ns is None else end_ns
    return is_part and all(isinstance(one, int | float) for one in numbers)


def _advice(path: Path, content: Any) -> Advice:
    kinds = {field.name: _JSON_TYPES[str(field.type)] for field in dataclasses.fields(Advice)}
    if not (isinstance(content, dict) and content.keys() == kinds.keys()):
        raise ReportError(f"{path}: advice: {content!r}: expected {', '.join(kinds)}")
    for name, types in kinds.items():
        if not isinstance(content[name], types):
            raise ReportError(f"{path}: advice: {name} = {content[name]!r}: expected words or a number")
    return Advice(**content)


def _read_thinned(path: Path, content: Any) -> Thinned | None:
    if content is None:
        return None
    names, found = [field.name for field in dataclasses.fields(Thinned)], {"steady": None, **content}
    if sorted(found) != sorted(names) or not all(_fits(name, found[name]) for name in names):
        raise ReportError(f"{path}: thinned = {content!r}: expected numbers for {', '.join(names)}")
    values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in found.items()}
    return Thinned(**values)


def _host_counts(path: Path, content: list[Any]) -> tuple[tuple[int, int], ...]:
    for pair in content:
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, int) for one in pair)
        if not (is_pair and pair[0] >= 0 and pair[1] >= 1):
            raise ReportError(f"{path}: host_counts = {content!r}: expected pairs of a host and how many are like it")
    return tuple((host, count) for host, count in content)


def _rank_classes(path: Path, content: list[Any]) -> tuple[tuple[int, int, str], ...]:
    for each in content:
        if not (isinstance(each, list) and [type(one) for one in each] == [int, int, str]):
            raise ReportError(f"{path}: rank_classes: {each!r}: expected a rank, how many are like it, and which")
    return tuple((rank, count, ranks) for rank, count, ranks in content)


def _fits(name: str, value: object) -> bool:
    if name == "left_out":
        return isinstance(value, int)
    is_list = isinstance(value, list) and all(isinstance(one, int) for one in value)
    return is_list or (value is None and name != "phases")


def _load_table(path: Path, row_type: type) -> pd.DataFrame:
    if path.stem in LATER_TABLES and not path.exists():
        return to_frame(schema_of(row_type).empty_table(), row_type)
    _check_columns(path, row_type)
    try:
        table = pq.read_table(path, **VERIFIED)
        names = schema_of(row_type).names
        return check_frame(path, to_frame(complete_columns(table, row_type, names).select(names), row_type), row_type)
    except (OSError, pa.ArrowException, ValueError) as error:  # also raised for cells without a value
        raise unreadable(path, error) from error


def _load_rows(path: Path, row_type: type[R]) -> list[R]:
    frame = _load_table(path, row_type)
    return [row_type(**{str(name): value for name, value in row.items()}) for row in frame.to_dict("records")]


def load_spans(folder: Path, part_rows: int) -> Spans:
    """Return a folder's spans: read at once if there are up to `part_rows`, else in parts of that size on use."""
    path = folder / SPANS_FILE
    rows = _check_columns(path, Span)
    return SpansInMemory(_load_table(path, Span)) if rows <= part_rows else SpansInFile(path, part_rows)


def _unpacked_bytes(metadata: Any) -> int:
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def _check_columns(path: Path, row_type: type) -> int:
    """Check that a file has the columns of the row type, and return its number of rows."""
    if not path.is_file():
        raise ReportError(f"{path.parent}: damaged: it has no {path.name}")
    try:
        with pq.ParquetFile(path, **VERIFIED) as file:
            if (size := _unpacked_bytes(file.metadata)) > _MOST_TABLE_BYTES and row_type is not Span:
                raise ReportError(f"{path}: {size:,} bytes; expected a table of at most {_MOST_TABLE_BYTES:,}")
            found, rows = file.schema_arrow, int(file.metadata.num_rows)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # also raised for names in a damaged footer
        raise unreadable(path, error) from error
    needed = required_columns(row_type)
    expected = [field for field in schema_of(row_type) if field.name in found.names or field.name in needed]
    missing = [field for field in expected if field.name not in found.names]
    unlike = [field for field in expected if field not in missing and found.field(field.name).type != field.type]
    for field in (missing + unlike)[:1]:
        raise ReportError(f"{path}: column {field.name} is missing or not {field.type}")
    return rows

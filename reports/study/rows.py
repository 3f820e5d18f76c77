"""The rows of a study: one Parquet data set, to which each point's row is added as a file of its own.

A folder holds `study.json` (the varied keys and the goals), `study.toml` (the study file as given),
`rows/part-N.parquet`, and `runs/`, run folders of points. Small files are merged now and then.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports.errors import ReportError
from reports.store.parts import VERIFIED, unreadable
from reports.store.replace import replace_file
from reports.study.measures import MEASURES
from scenarios import given_file

STUDY_FILE, COPY, ROWS, RUNS = "study.json", "study.toml", "rows", "runs"
SCHEMA_VERSION = 1
# Statuses that another try may change.
BY_CHANCE = frozenset({"timed out", "worker lost", "error"})
_TEXTS = ("digest", "fidelity", "status", "sentence", "version", "run", "worker", "plan", "values")
COLUMNS: dict[str, Any] = {
    "index": pa.int64(),
    **dict.fromkeys(_TEXTS, pa.string()),
    "seconds": pa.float64(),
    "played": pa.bool_(),
    **dict.fromkeys(MEASURES, pa.float64()),
}
_LATER = ("plan", *MEASURES)
_LOOSE = 256  # files of one row that are merged into one

Row = Mapping[str, Any]


class StudyRows:
    """A study's data set, which one command at a time adds to; see `open_rows`."""

    def __init__(self, folder: Path, kinds: Mapping[str, pa.DataType], *, version: str, again: bool) -> None:
        self._folder, self._kinds = folder, kinds
        self._known: dict[tuple[str, str], Row] = {}
        for draft in (folder / ROWS).glob(".*.partial"):
            draft.unlink()
        paths = parts_of(folder)
        self._loose: list[Path] = []
        self._next = 1 + (_number(paths[-1]) if paths else 0)
        for row in stored_rows(folder):
            if row["version"] == version and not (again and row["status"] in BY_CHANCE):
                self._known[row["digest"], row["fidelity"]] = row

    def find_row(self, digest: str, fidelity: str) -> Row | None:
        """Return the row of a scenario that was simulated with this fidelity by any command, or None."""
        return self._known.get((digest, fidelity))

    def add(self, row: Row) -> None:
        """Add a row to the study's data set.

        Raises:
            ReportError: the disk refuses.
        """
        self._loose.append(self._write([row]))
        self._known[row["digest"], row["fidelity"]] = row
        if len(self._loose) >= _LOOSE:
            self._put_together()

    def add_folder(self, digest: str, fidelity: str, archive: bytes) -> str:
        """Unpack a point's run folder and return its path in the study's folder.

        Raises:
            ReportError: the disk refuses.
        """
        name = f"{RUNS}/{digest[:16]}-{fidelity}"
        path = self._folder / name
        try:
            with replace_file(path) as draft, tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(draft, filter="data")
                shutil.rmtree(path, ignore_errors=True)  # left by a command that was killed before it wrote the row
        finally:
            for draft in path.parent.glob(f".{path.name}.*.partial"):
                shutil.rmtree(draft, ignore_errors=True)
        return name

    def finish(self, rows: Iterable[Row]) -> None:
        """Write all rows of the current study into one file; other rows, of earlier versions of it, get index -1.

        Raises:
            ReportError: the disk refuses.
        """
        whole = list(rows)
        now = {(row["digest"], row["fidelity"]) for row in whole}
        earlier = [
            {**row, "index": -1} for row in stored_rows(self._folder) if (row["digest"], row["fidelity"]) not in now
        ]
        left = list({(row["digest"], row["fidelity"]): row for row in earlier}.values())
        before = parts_of(self._folder)
        if whole or left:
            self._write(sorted([*whole, *left], key=lambda row: (row["index"], row["fidelity"])))
        _remove(before)
        self._loose = []

    def _put_together(self) -> None:
        before, self._loose = self._loose, []
        self._write([row for path in before for row in _rows_of(path)])
        _remove(before)

    def _write(self, rows: list[Row]) -> Path:
        path = self._folder / ROWS / f"part-{self._next:08}.parquet"
        with replace_file(path) as draft:
            pq.write_table(self._table(rows), draft, compression="zstd", write_page_checksum=True)
        self._next += 1
        return path

    def _table(self, rows: list[Row]) -> pa.Table:
        columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
        columns["values"] = [json.dumps(row["values"], default=str) for row in rows]
        arrays = [pa.array(columns[name], kind) for name, kind in COLUMNS.items()]
        for key, kind in self._kinds.items():
            arrays.append(pa.array([_plain(row["values"].get(key), kind) for row in rows], kind))
        return pa.table(arrays, names=[*COLUMNS, *self._kinds])


def kind_of(values: Iterable[object]) -> pa.DataType:
    """Return the type of a varied key's column: that of all its values, or JSON as text."""
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return pa.bool_()
    if types == {int}:
        return pa.int64()
    return pa.float64() if types and types <= {int, float} else pa.string()


def _plain(value: object, kind: pa.DataType) -> object:
    if value is None or not pa.types.is_string(kind) or isinstance(value, str):
        return value
    return json.dumps(value, default=str)


@contextmanager
def open_rows(
    folder: Path,
    about: Mapping[str, Any],
    study: bytes | None,
    values: Mapping[str, Iterable[object]],
    *,
    again: bool = False,
) -> Iterator[StudyRows]:
    """Yield the data set in a folder, which is created if needed.

    Args:
        folder: the study's folder.
        about: the content of `study.json`.
        study: the study file's bytes; None where it has none.
        values: the values of each varied key.
        again: simulate points again that ended by chance, such as by a timeout.

    Raises:
        ReportError: the folder is something else, another command adds to it, or the disk refuses.
    """
    if folder.exists() and not (folder / STUDY_FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReportError(f"{folder}: expected a study's folder, or a new one")
    try:
        (folder / ROWS).mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise ReportError(f"{folder}: could not be written: {error.strerror or error}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ReportError(f"{folder}: another command is adding to this study; wait until it ends") from None
        kinds = {key: kind_of(each) for key, each in values.items()}
        with replace_file(folder / STUDY_FILE) as draft:
            draft.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **about}, indent=2, default=str) + "\n")
        if study is not None:
            with replace_file(folder / COPY) as draft:
                draft.write_bytes(study)
        yield StudyRows(folder, kinds, version=about["version"], again=again)


def is_study(folder: Path) -> bool:
    """Return whether a folder is a study's."""
    return (folder / STUDY_FILE).is_file()


def about_of(folder: Path) -> dict[str, Any]:
    """Return the content of `study.json`.

    Raises:
        ReportError: the folder is not a study's, or of a newer release.
    """
    try:
        about = given_file.read_json(folder / STUDY_FILE)
        newer = about["schema_version"] > SCHEMA_VERSION
    except OSError:
        raise ReportError(f"{folder}: no such study; expected a folder of 'python -m sim sweep'") from None
    except (ValueError, KeyError, TypeError):
        raise ReportError(f"{folder / STUDY_FILE}: expected what 'python -m sim sweep' writes") from None
    if newer:
        raise ReportError(f"{folder}: written by a newer release; expected schema {SCHEMA_VERSION} or less")
    assert isinstance(about, dict)
    return about


def stored_rows(folder: Path) -> list[Row]:
    """Return all rows on disk in the order of writing, including those that later ones replace.

    Raises:
        ReportError: a file is damaged.
    """
    return [row for path in parts_of(folder) for row in _rows_of(path)]


def parts_of(folder: Path) -> list[Path]:
    """Return the files of the data set, in their order."""
    return sorted((folder / ROWS).glob("part-*.parquet"))


def _rows_of(path: Path) -> list[Row]:
    try:
        known = set(pq.read_schema(path).names)  # without columns that came with a later release
        columns = [name for name in COLUMNS if name in known or name not in _LATER]
        table = pq.read_table(path, columns=columns, **VERIFIED)
    except FileNotFoundError:  # merged with others a moment ago
        return []
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    unknown = dict.fromkeys(_LATER)
    return [{**unknown, **row, "values": json.loads(row["values"])} for row in table.to_pylist()]


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("part-"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)

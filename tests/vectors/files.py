"""Finds recorded files, recognizes their format by its fields, and makes the replays of each case.

The meaning of cases is left to `formats`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.vectors.fields import Fields, Kind, VectorError
from tests.vectors.plays import Batch

Case = dict[str, Any]
Check = Callable[[], None]


@dataclass
class File:
    """A recorded file: its path below the directory, its values outside the cases, and the arrays of its .npz."""

    name: str
    head: dict[str, Any]
    kinds: Mapping[str, Kind]
    arrays: dict[str, NDArray[Any]]
    batches: dict[tuple[str, int, int], Batch] = field(default_factory=dict)

    def say(self, key: str) -> Any:
        """Return the value of a key outside the cases; VectorError if it is missing or of another kind."""
        found = {key: self.head[key]} if key in self.head else {}
        Fields({key: self.kinds[key]}).check(found, self.name)
        return self.head[key]

    def batch(self, world: str, hosts: int, gpus_per_host: int) -> Batch:
        """Return the batch in which the file's cases run on these ranks."""
        ranks = world, hosts, gpus_per_host
        return self.batches.setdefault(ranks, Batch(*ranks))


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file: the key `cases` holds its cases (a list, or a record by name), `head` has its other keys.

    A file is of the format if its cases have the fields of `signature`; they may have more. `replays` yields the name
    of each replay of a case ("1.8.0", "sim", "" if there is only one) with its check, and raises VectorError for a
    case that it does not understand.
    """

    name: str
    cases: str
    signature: frozenset[str]
    head: Mapping[str, Kind]
    replays: Callable[[File, str, Case], Iterator[tuple[str, Check]]]
    has_arrays: bool = False


@dataclass(frozen=True)
class Replay:
    """One test."""

    file: str
    case: str
    way: str
    check: Check

    @property
    def id(self) -> str:
        return "-".join(filter(None, (self.file, self.case, self.way)))


def replays_of(directory: Path, formats: list[Format], notes: list[str] | None = None) -> list[Replay]:
    """Return the replays of every *.json in a directory and below; a file that cannot be read has one that fails.

    Files without replays that are no mistakes are added to `notes`.
    """
    made: list[Replay] = []
    notes = [] if notes is None else notes
    for path in sorted(files_below(directory)):
        name = path.relative_to(directory).as_posix()
        if path.suffix.lower() == ".json":
            made += _or_failing(name, "", partial(_file_replays, path, name, formats, notes))
        elif path.suffix.lower() == ".npz":
            if beside(path, ".json") is None:
                made.append(failing(name, "", f"{name}: arrays, expected {path.stem}.json beside them"))
        elif is_like_a_recording(path):
            made.append(failing(name, "", f"{name}: expected *.json, and *.npz for its arrays"))
        else:
            notes.append(f"{name}: left alone, as it is no recording")
    return made


def files_below(directory: Path) -> Iterator[Path]:
    """Yield every file in a directory and below; links to directories are followed, each directory is entered once.

    Raises:
        OSError: a directory cannot be read.
    """
    entered: set[str] = set()
    for folder, folders, names in os.walk(directory, onerror=_raise, followlinks=True):
        if os.path.realpath(folder) in entered:
            folders.clear()
            continue
        entered.add(os.path.realpath(folder))
        yield from (Path(folder, name) for name in names)


def is_like_a_recording(path: Path) -> bool:
    """Return whether a file is like a recording, also packed or with another suffix: *.json.gz, *.jsonl, *.npy."""
    return any(suffix.lower().startswith((".json", ".np")) for suffix in path.suffixes)


def beside(path: Path, suffix: str) -> Path | None:
    """Return the file of the same name with another suffix, in upper or lower case; None if there is none."""
    found = (other for other in path.parent.iterdir() if other.stem == path.stem and other.suffix.lower() == suffix)
    return min(found, default=None)


def _raise(error: OSError) -> None:
    raise error


def failing(file: str, case: str, sentence: str) -> Replay:
    """Return a replay that fails with a sentence."""

    def fail() -> None:
        raise VectorError(sentence)

    return Replay(file, case, "", fail)


def _or_failing(file: str, case: str, make: Callable[[], list[Replay]]) -> list[Replay]:
    """Return the replays that `make` returns, or one that fails: other files and cases are still replayed."""
    try:
        return make()
    except VectorError as error:
        return [failing(file, case, str(error))]
    except Exception as error:
        return [failing(file, case, f"{file}: {case or 'the file'}: {type(error).__name__}: {error}")]


def _file_replays(path: Path, name: str, formats: list[Format], notes: list[str]) -> list[Replay]:
    content = _parse(path, name)
    form = _format_of(content, name, formats)
    head = {key: value for key, value in content.items() if key != form.cases}
    file = File(name, head, form.head, _arrays(path, name, form))
    made = _or_failing(name, "", partial(_head_replays, file, form))
    seen: set[str] = set()
    for index, (case_id, case) in enumerate(named_cases(content[form.cases])):
        if case_id in seen:
            sentence = f"{name}: {form.cases}[{index}].id = {case_id!r}: a case before has it, expected an own one"
            made.append(failing(name, f"{case_id} again, #{index}", sentence))
            continue
        seen.add(case_id)
        made += _or_failing(name, case_id, partial(_case_replays, file, form, case_id, case))
    others = {key.split("/")[0] for key in file.arrays} - seen
    if others:
        notes.append(f"{name}: its arrays of {', '.join(sorted(others))} belong to none of its cases")
    return made


def _head_replays(file: File, form: Format) -> list[Replay]:
    """Check the values outside the cases; they have no replays."""
    Fields(form.head).check(file.head, file.name)
    return []


def _case_replays(file: File, form: Format, case_id: str, case: Case) -> list[Replay]:
    found = form.replays(file, f"{file.name}: {case_id}", case)
    return [Replay(file.name, case_id, way, check) for way, check in found]


def _parse(path: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_record)
    except ValueError as error:
        raise VectorError(f"{name}: no JSON: {error}") from error
    if not isinstance(content, dict):
        raise VectorError(f"{name}: holds a {type(content).__name__}, expected a record with cases")
    return content


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a record; refuse two values of one key, of which Python's own parser keeps the last."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one record")
    return record


def _format_of(content: dict[str, Any], name: str, formats: list[Format]) -> Format:
    found = [form for form in formats if form.signature and form.signature <= _fields_of(content.get(form.cases))]
    if len(found) == 1:
        return found[0]
    empty = [key for key in sorted({form.cases for form in formats}) if content.get(key) in ([], {})]
    if empty:
        raise VectorError(f"{name}.{empty[0]} is empty: expected one case or more")
    if found:
        raise VectorError(f"{name}: its cases fit {' and '.join(form.name for form in found)}, expected one format")
    fields = sorted({key for form in formats for key in _fields_of(content.get(form.cases))})
    known = ", ".join(f"{form.name} ({form.cases} with {', '.join(sorted(form.signature))})" for form in formats)
    raise VectorError(
        f"{name}: a file of {', '.join(content) or 'nothing'}, cases of {', '.join(fields) or 'nothing'}:"
        f" expected one of the formats {known}"
    )


def _fields_of(cases: object) -> set[str]:
    """Return all fields of the cases."""
    if isinstance(cases, dict):
        cases = [item for outcomes in cases.values() if isinstance(outcomes, list) for item in outcomes]
    return {key for case in cases if isinstance(case, dict) for key in case} if isinstance(cases, list) else set()


def named_cases(cases: Any) -> Iterator[tuple[str, Any]]:
    """Yield each case with its name: the case's id, or its index."""
    if isinstance(cases, dict):
        yield from cases.items()
        return
    for index, case in enumerate(cases):
        named = case.get("id") if isinstance(case, dict) else None
        yield named if isinstance(named, str) and named else f"#{index}", case


def _arrays(path: Path, name: str, form: Format) -> dict[str, NDArray[Any]]:
    found = beside(path, ".npz")
    if form.has_arrays and found is None:
        raise VectorError(f"{name}: a file of {form.name}, expected {path.stem}.npz beside it")
    if not form.has_arrays and found is not None:
        raise VectorError(f"{name}: {found.name} stands beside it, but {form.name} has no arrays")
    if found is None:
        return {}
    try:
        with found.open("rb") as file, np.load(file) as arrays:
            return {key: arrays[key] for key in arrays}
    except Exception as error:
        # Of a broken archive numpy raises whatever reading its bytes runs into.
        raise VectorError(f"{name}: {found.name} cannot be read: {type(error).__name__}: {error}") from error

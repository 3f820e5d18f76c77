"""Writes points of a study as scenario files, which include the study's scenario and set the point's values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scenarios.config.catalogue import library_files
from scenarios.toml_writer import toml_value
from scenarios.workloads.script.command import is_script, lines_of
from twinstep.studies.study_file import Study

FOLDER = "front"
# Endings of files that a scenario may refer to.
_ENDINGS = (".toml", ".csv", ".json", ".py")


@dataclass(frozen=True, slots=True)
class Best:
    """A point, its row's fidelity, and its measures in words."""

    index: int
    fidelity: str
    values: Mapping[str, object]
    words: str


def write_scenarios(study: Study, points: Iterable[Best], into: Path) -> None:
    """Write a file NNN.toml for each point, in place of earlier ones.

    Raises:
        OSError: the disk refuses.
    """
    into.mkdir(exist_ok=True)
    for old in into.glob("[0-9]*.toml"):
        old.unlink()
    for point in points:
        (into / f"{point.index:03}.toml").write_text(_text(study, point, into), encoding="utf-8")


def _text(study: Study, point: Best, into: Path) -> str:
    values = {**study.shared, **point.values}
    if study.stages[-1].fidelity and point.fidelity in ("links", "flows"):
        values["run.fidelity"] = point.fidelity
    lines = [f"# Point {point.index} of {study.file.name}: {point.words}", ""]
    if is_script(Path(study.scenario)):
        lines += lines_of(Path(study.scenario), values.get("cluster.profile"))
    else:
        lines += [f"include = {toml_value(_path_to_include(study.scenario, into))}"]
    moved = {key: _move_paths(value, study.file.parent, into) for key, value in values.items()}
    lines += ["", "[set]", *(f"{toml_value(key)} = {toml_value(value)}" for key, value in moved.items())]
    return "\n".join(lines) + "\n"


def _path_to_include(scenario: str, into: Path) -> str:
    """Return a ready scenario's name, which works on any machine; else the path from the written file."""
    file = Path(scenario).resolve()
    is_ready = any(file == ready.resolve() for ready in library_files())
    return file.stem if is_ready else os.path.relpath(file, into.resolve())


def _move_paths(value: object, beside: Path, into: Path) -> object:
    """Return a value with its paths, which are relative to the study, relative to the written files."""
    if isinstance(value, list):
        return [_move_paths(one, beside, into) for one in value]
    if isinstance(value, Mapping):
        return {key: _move_paths(one, beside, into) for key, one in value.items()}
    if not isinstance(value, str):
        return value
    path, colon, name = value.partition(":")  # a program is ./file.py:factory
    is_beside = path.endswith(_ENDINGS) and not os.path.isabs(path) and (beside / path).is_file()
    return f"{os.path.relpath((beside / path).resolve(), into.resolve())}{colon}{name}" if is_beside else value

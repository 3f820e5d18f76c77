"""A validation's folder: written as scenarios are done, and read as frames."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.repeats import Plays
from reports.errors import ReportError
from reports.store.columns import frame_of_columns
from reports.store.json_file import read_json
from reports.store.replace import replace_file
from reports.store.run_folder import RUN_FILE
from reports.terminal import text
from reports.terminal.rows import records
from reports.validation.validation import VALIDATED_OPERATIONS, Validation, errors_of

_SIDES = ("predicted", "measured")
_TIMES = ("median_ns", "median_low_ns", "median_high_ns", "low_ns", "high_ns")
SCENARIOS = {
    **dict.fromkeys(["scenario", "library"], "str"),
    "world_size": "int",
    **{f"{side}_{name}": "float" for side in _SIDES for name in _TIMES},
    **dict.fromkeys(["error", "error_low", "error_high"], "float"),
    **dict.fromkeys(["inside", "is_too_noisy"], "bool"),
    "ended": "str",
}
_OUTCOME = ("error", "error_low", "error_high", "inside", "is_too_noisy", "ended")
OPERATIONS = {"scenario": "str", **VALIDATED_OPERATIONS}
VALIDATION_FILE = "validation.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A validation as read from its folder: a row of `scenarios` each, rows of `operations` by scenario and operation.

    `head` has the command's settings. Columns are those of validation.json (twinstep docs validation); null there is
    nan, in `inside` False.
    """

    folder: Path
    head: Mapping[str, Any]
    scenarios: pd.DataFrame
    operations: pd.DataFrame

    def runs(self) -> list[Path]:
        """Return the folders of the validation's runs; scenarios that failed have none."""
        every = [self.folder / name / side for name in self.scenarios["scenario"] for side in _SIDES]
        return [folder for folder in every if (folder / RUN_FILE).is_file()]


def load(folder: Path) -> Validated:
    """Return the validation in a folder.

    Raises:
        ReportError: validation.json is missing, not one of ours, or of a newer release.
    """
    if not (folder / VALIDATION_FILE).exists():
        raise ReportError(f"{folder}: expected two run folders, or that of a validation, which has {VALIDATION_FILE}")
    content = _content(folder / VALIDATION_FILE)
    try:
        return _read_validated(folder, content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"{folder / VALIDATION_FILE}: not a validation's: {error!r}") from None


def _read_validated(folder: Path, content: Mapping[str, Any]) -> Validated:
    scenarios = [_scenario(one) for one in content["scenarios"]]
    operations = [{"scenario": one["name"], **row} for one in content["scenarios"] for row in one["operations"]]
    return Validated(
        folder=folder,
        head={name: value for name, value in content.items() if name != "scenarios"},
        scenarios=_frame(scenarios, SCENARIOS),
        operations=_frame(operations, OPERATIONS),
    )


def _content(path: Path) -> dict[str, Any]:
    content = read_json(path, "; expected what 'twinstep validate' wrote")
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise ReportError(f"{path}: schema_version = {version!r}: expected {SCHEMA_VERSION}")
    assert isinstance(content, dict)
    return content


def _scenario(one: Mapping[str, Any]) -> dict[str, Any]:
    sides = {side: one[side] or {} for side in _SIDES}
    times = {f"{side}_{name}": sides[side].get(name) for side in _SIDES for name in _TIMES}
    return {"scenario": one["name"], **times, **{name: one[name] for name in ("library", "world_size", *_OUTCOME)}}


def _frame(rows: list[dict[str, Any]], kinds: Mapping[str, str]) -> pd.DataFrame:
    unknown = {"float": np.nan, "bool": False}
    columns = {
        name: [unknown.get(kind) if row[name] is None else row[name] for row in rows] for name, kind in kinds.items()
    }
    return frame_of_columns(columns, kinds)


def content(head: Mapping[str, Any], validations: Sequence[Validation]) -> dict[str, Any]:
    """All that is known, as JSON-ready values; `head` says how it was found."""
    scenarios = [
        {
            **{name: getattr(one, name) for name in ("name", "file", "digest", "library", "world_size", "steps")},
            "predicted": _side(one.predicted, "draw"),
            "measured": _side(one.measured, "round"),
            **{name: getattr(one, name) for name in _OUTCOME},
            "operations": records(one.operations),
        }
        for one in validations
    ]
    errors = dataclasses.asdict(errors_of(validations))
    whole = {"schema_version": SCHEMA_VERSION, **head, "errors": errors, "scenarios": scenarios}
    return text.json_ready(whole)  # type: ignore[no-any-return]


def as_validated(folder: Path, head: Mapping[str, Any], validations: Sequence[Validation]) -> Validated:
    """Return a validation as `load` would read it after `write`."""
    return _read_validated(folder, content(head, validations))


def write(folder: Path, head: Mapping[str, Any], validations: Sequence[Validation]) -> None:
    """Replace validation.json, validation.csv and operations.csv, each whole.

    Raises:
        ReportError: the disk refuses.
    """
    whole = content(head, validations)
    files = {VALIDATION_FILE: json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"}
    if validations:
        # As objects, so that whole numbers stay so beside what is unknown.
        files["validation.csv"] = pd.DataFrame(map(_flat, whole["scenarios"]), dtype=object).to_csv(index=False)
        files["operations.csv"] = _read_validated(folder, whole).operations.to_csv(index=False)
    for name, words in sorted(files.items()):  # validation.json comes last
        with replace_file(folder / name) as draft:
            draft.write_text(words, encoding="utf-8")


def _flat(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario of `content` without its lists; keys of a side begin with the side."""
    row: dict[str, Any] = {}
    for key, value in scenario.items():
        own = {f"{key}_{name}": one for name, one in (value or {}).items()} if key in _SIDES else {key: value}
        row |= {name: one for name, one in own.items() if not isinstance(one, list)}
    return row


def _side(plays: Plays | None, play: str) -> dict[str, Any] | None:
    if plays is None:
        return None
    sample = plays.sample
    return {
        **{f"{name}_ns": getattr(sample, name) for name in ("median", "median_low", "median_high", "low", "high")},
        **{name: getattr(sample, name) for name in ("spread", "uncertainty")},
        "disagreement": plays.disagreement,
        "steps": sample.count,
        f"{play}s": len(plays.each),
        f"{play}_medians_ns": plays.medians_ns,
        f"{play}_steps_ns": [list(one.step_ns) for one in plays.each],
    }

"""The files of a validation's folder, replaced as scenarios are done; the runs beside them are left to the caller."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.errors import ReportError
from reports.terminal import text
from reports.validation import tables as validation_tables
from reports.validation.validation import Validation

VALIDATION_FILE = "validation.json"
SCHEMA_VERSION = 1


def content(head: Mapping[str, Any], validations: Sequence[Validation]) -> dict[str, Any]:
    """All that is known, as JSON-ready values; `head` says how it was found."""
    plain = text.plain({"schema_version": SCHEMA_VERSION, **head})
    return {**plain, **validation_tables.as_json(validations)}


def write(folder: Path, head: Mapping[str, Any], validations: Sequence[Validation]) -> None:
    """Replace validation.json, validation.csv and operations.csv, each whole.

    Raises:
        ReportError: the disk refuses.
    """
    whole = json.dumps(content(head, validations), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        if validations:
            _replace(folder / "validation.csv", validation_tables.frame(validations).to_csv(index=False))
            _replace(folder / "operations.csv", validation_tables.operations_frame(validations).to_csv(index=False))
        _replace(folder / VALIDATION_FILE, whole)
    except OSError as error:
        raise ReportError(f"{folder}: could not be written: {error.strerror or error}") from error


def _replace(path: Path, words: str) -> None:
    draft = path.with_name(f".{path.name}.partial")
    draft.write_text(words, encoding="utf-8")
    os.replace(draft, path)

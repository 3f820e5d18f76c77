"""Writes the files of a validation's folder, which are replaced as scenarios are done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.store.replace import replaced
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
    whole = json.dumps(content(head, validations), indent=1, ensure_ascii=False, allow_nan=False)
    files = {VALIDATION_FILE: whole + "\n"}
    if validations:
        files["validation.csv"] = validation_tables.frame(validations).to_csv(index=False)
        files["operations.csv"] = validation_tables.operations_frame(validations).to_csv(index=False)
    for name, words in sorted(files.items()):  # validation.json comes last
        with replaced(folder / name) as draft:
            draft.write_text(words, encoding="utf-8")

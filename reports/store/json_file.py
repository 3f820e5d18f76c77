"""Reads a JSON file that this project wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.errors import ReportError
from scenarios import given_file


def read_json(path: Path, expected: str = "") -> Any:
    """Return a file's content; `expected` ends the sentence of a file that cannot be read.

    Raises:
        ReportError: the file cannot be read or is not JSON.
    """
    try:
        return given_file.read_json(path)
    except OSError as error:
        raise ReportError(f"{path}: could not be read: {error.strerror or error}{expected}") from error
    except ValueError as error:
        raise ReportError(f"{path}: not JSON: {error}") from error

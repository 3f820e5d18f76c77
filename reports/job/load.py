"""Reads the folder of a job of days, predicted or real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.errors import ReportError
from reports.job.folder import JOB_FILE, SCHEMA_VERSION, JobRun, predicted_job
from reports.job.real_job import RealJob, real_job
from reports.store.json_file import read_json


def load(folder: Path) -> JobRun | RealJob:
    """Return the job in a folder.

    Raises:
        ReportError: a file is missing, damaged, or of a newer release.
    """
    head = _read(folder / JOB_FILE)
    return real_job(head, folder) if "measured" in head else predicted_job(head, folder)


def _read(file: Path) -> dict[str, Any]:
    head = read_json(file)
    version = head.get("schema_version") if isinstance(head, dict) else None
    if version != SCHEMA_VERSION:
        raise ReportError(f"{file}: schema_version = {version!r}: expected {SCHEMA_VERSION}, as of a job")
    found: dict[str, Any] = head
    return found

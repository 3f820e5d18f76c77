"""A predicted job of days: its values and frames, and the folder that they are written into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports.errors import ReportError
from reports.job.kinds import COLUMNS, PREDICTED, check, check_frame
from reports.store.replace import replace_file
from reports.terminal import text
from reports.terminal.rows import records

JOB_FILE = "job.json"
STEP = "step"  # the run folder of the predicted step, inside the job's folder
SCHEMA_VERSION = 1
FRAMES = tuple(COLUMNS)


@dataclass(frozen=True, kw_only=True, repr=False)
class JobRun:
    """A predicted job; `twinstep docs jobs` lists keys and columns.

    Attributes:
        head: goal, cluster, step, checkpoints, failures, and the outcome: goodput, time, money, time lost by cause.
        draws: a row for each job that was played: its length, steps, and seconds and interruptions by cause.
        phases: what happened in the typical job, in order: begin_s, end_s, what, hosts, why.
        intervals: goodput by checkpoint interval, simulated and by closed form.
        sizes: goodput by number of hosts.
        changes: what would raise the goodput, one change at a time.
    """

    head: Mapping[str, Any]
    draws: pd.DataFrame
    phases: pd.DataFrame
    intervals: pd.DataFrame
    sizes: pd.DataFrame
    changes: pd.DataFrame

    @property
    def goodput(self) -> float:
        """The expected share of the job's time in which steps are done that count."""
        return float(self.head["goodput"])

    @property
    def lost(self) -> Mapping[str, float]:
        """The share of the job's time that each cause takes; with `goodput` they sum to 1."""
        found: Mapping[str, float] = self.head["lost"]
        return found


def is_job(folder: Path) -> bool:
    """Return whether a folder is a job's."""
    return (folder / JOB_FILE).is_file()


def content(job: JobRun) -> dict[str, Any]:
    """Return all that is known of a job but its draws, as JSON-ready values."""
    frames = {name: records(getattr(job, name)) for name in FRAMES if name != "draws"}
    whole = {"schema_version": SCHEMA_VERSION, **job.head, **frames}
    return text.json_ready(whole)  # type: ignore[no-any-return]


def write(job: JobRun, folder: Path) -> None:
    """Write the job's files into a folder that exists, each whole; job.json comes last.

    Raises:
        ReportError: the disk refuses.
    """
    for name in FRAMES:
        with replace_file(folder / f"{name}.parquet") as draft:
            getattr(job, name).to_parquet(draft, index=False)
    write_content(content(job), folder)


def write_content(found: Mapping[str, Any], folder: Path) -> None:
    """Write job.json, whole or not at all; ReportError if the disk refuses."""
    whole = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    with replace_file(folder / JOB_FILE) as draft:
        draft.write_text(whole + "\n", encoding="utf-8")


def predicted_job(head: Mapping[str, Any], folder: Path) -> JobRun:
    """Return the predicted job whose job.json has these values.

    Raises:
        ReportError: a value or a frame is missing, or a frame is damaged.
    """
    check(folder / JOB_FILE, head, PREDICTED)
    if unknown := sorted(head["failures"].keys() - head["failure_rates"]["per_day"].keys()):
        raise ReportError(f"{folder / JOB_FILE}: failure_rates.per_day: expected a rate of {', '.join(unknown)}")
    frames = {name: _frame(folder / f"{name}.parquet", name) for name in FRAMES}
    return JobRun(head={key: value for key, value in head.items() if key not in FRAMES}, **frames)


def _frame(path: Path, name: str) -> pd.DataFrame:
    if not path.is_file():  # of a folder Parquet would read all files
        raise ReportError(f"{path.parent}: damaged: it has no {path.name}")
    try:
        return check_frame(path, pd.read_parquet(path), name)
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: could not be read: {error}") from None

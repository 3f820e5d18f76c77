"""The report of a job on real ranks: lost time by cause, measured and predicted, and what happened when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports.job.folder import JOB_FILE, SCHEMA_VERSION
from reports.job.kinds import REAL, check
from reports.sections.model import Report, ReportSection, ReportTable, Words
from reports.terminal import text
from reports.terminal.rows import records

_SHOWN_S = 3  # digits behind the point of seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RealJob:
    """A job on real ranks beside its prediction.

    Attributes:
        head: name, hosts, ranks, steps, step_s, interval_steps, size_bytes, kills (words), played_on.
        lost: columns cause, measured_s, predicted_s.
        measured_s, predicted_s: seconds of the whole job.
        again: steps that were done again.
        spans: columns begin_s, end_s, what, why; as measured.
    """

    head: dict[str, Any]
    lost: pd.DataFrame
    measured_s: float
    predicted_s: float
    again: int
    spans: pd.DataFrame

    @property
    def total(self) -> tuple[float, float]:
        """The seconds lost in all: measured, and predicted."""
        return float(self.lost["measured_s"].sum()), float(self.lost["predicted_s"].sum())


def content(job: RealJob) -> dict[str, Any]:
    """Return the job as JSON has it."""
    measured, predicted = job.total
    rows = {row.pop("cause"): row for row in records(job.lost)}
    return {
        "schema_version": SCHEMA_VERSION,
        **job.head,
        "measured": {"seconds": job.measured_s, "lost_s": measured, "steps_again": job.again},
        "predicted": {"seconds": job.predicted_s, "lost_s": predicted},
        "error": error_of(measured, predicted),
        "lost": rows,
        "spans": list(records(job.spans)),
    }


def real_job(head: dict[str, Any], folder: Path) -> RealJob:
    """Return the real job whose job.json has these values; the values are removed from `head`.

    Raises:
        ReportError: a value is missing or damaged.
    """
    check(folder / JOB_FILE, head, REAL)
    measured, predicted = head.pop("measured"), head.pop("predicted")
    lost, spans = (pd.DataFrame(rows) for rows in (_rows(head.pop("lost")), head.pop("spans")))
    return RealJob(
        head={name: value for name, value in head.items() if name not in ("error", "schema_version")},
        lost=lost,
        measured_s=measured["seconds"],
        predicted_s=predicted["seconds"],
        again=measured["steps_again"],
        spans=spans,
    )


def _rows(lost: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    return [{"cause": cause, **seconds} for cause, seconds in lost.items()]


def error_of(measured: float, predicted: float) -> float | None:
    """Return predicted / measured - 1; None where nothing was measured."""
    return predicted / measured - 1 if measured else None


def _lines(job: RealJob) -> list[str]:
    head = job.head
    kills = ", ".join(head["kills"]) or "nobody"
    return [
        f"{head['name']}: job of {head['steps']} steps on {text.count_words(head['ranks'], 'rank')} of"
        f" {text.count_words(head['hosts'], 'host')} ({head['played_on']}), a checkpoint every"
        f" {text.count_words(head['interval_steps'], 'step')}; killed: {kills}"
    ]


def _table(job: RealJob) -> Iterator[ReportTable]:
    measured, predicted = job.total
    rows = [_row(row["cause"], row["measured_s"], row["predicted_s"]) for row in records(job.lost)]
    rows.append(_row("lost in all", measured, predicted))
    rows.append(_row("whole job", job.measured_s, job.predicted_s))
    yield ReportTable("Lost time", ["cause", "measured s", "predicted s", "difference s", "error"], rows)


def _row(name: str, measured: float, predicted: float) -> list[str]:
    error = error_of(measured, predicted)
    seconds = [f"{value:.{_SHOWN_S}f}" for value in (measured, predicted, predicted - measured)]
    return [name, *seconds, "" if error is None or math.isinf(error) else f"{error:+.1%}"]


def _words(job: RealJob) -> Iterator[Words]:
    yield Words(
        f"{text.count_words(job.again, 'step')} begun again or in vain. An error is predicted / measured - 1."
        " Detection lasts until the last surviving host has stopped its ranks."
    )


def _spans(job: RealJob) -> Iterator[ReportTable]:
    rows = [
        [row["what"], row["why"], *(f"{row[at]:.{_SHOWN_S}f}" for at in ("begin_s", "end_s"))]
        for row in records(job.spans)
    ]
    yield ReportTable("What happened", ["what", "why", "begin s", "end s"], rows, left=2)


_LOST = ReportSection("lost", "Lost time", [_table, _words])
REAL_JOB_SUMMARY = Report(lines=_lines, sections=[_LOST])
REAL_JOB = Report(lines=_lines, sections=[_LOST, ReportSection("spans", "What happened", [_spans])], data=content)

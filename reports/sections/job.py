"""The report of a job of days: goodput, time and money, what time is lost on, and what would help."""

from __future__ import annotations

from collections.abc import Iterator

from reports.job.folder import JobRun
from reports.sections import model
from reports.sections.model import ReportSection, Words


def _summary(job: JobRun) -> Iterator[model.Block]:
    head = job.head
    yield Words(
        f"goodput {head['goodput']:.2%}, {head['time_to_train_s'] / 86400:.2f} days, {head['gpu_hours']:,.0f} GPU h"
    )
    yield Words(", ".join(f"{cause} {share:.2%}" for cause, share in job.lost.items() if share))


JOB_SUMMARY = model.Report(
    lines=lambda job: [f"{job.head['name']}: predicted job on {job.head['gpus']} GPUs"],
    sections=[ReportSection("job", "Job", [_summary])],
)
JOB = JOB_SUMMARY

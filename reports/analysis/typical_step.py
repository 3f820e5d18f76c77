"""Chooses the step that represents a run where only one can be shown."""

from __future__ import annotations

from reports.analysis.step_breakdown import steady_steps
from reports.errors import ReportError
from reports.run import Run
from reports.terminal import text


def typical_step(run: Run) -> int | None:
    """The steady step of median time among those that have spans; None where there is none."""
    kept = run.kept_steps["step"].tolist()
    steady = steady_steps(run.steps)
    steady = steady[steady["step"].isin(kept)].sort_values(["step_ns", "step"])
    return int(steady["step"].iloc[(len(steady) - 1) // 2]) if len(steady) else None


def step_shown(run: Run, asked: int | None) -> int | None:
    """The step that was asked for, or the typical one.

    Raises:
        ReportError: the run has no such step, or no longer has its spans.
    """
    numbers, kept = run.steps["step"].tolist(), run.kept_steps["step"].tolist()
    if asked is not None and asked not in numbers:
        known = f"steps {numbers[0]} to {numbers[-1]}" if numbers else "no steps"
        raise ReportError(f"--step {asked}: the run has {known}")
    if asked is not None and asked not in kept:
        raise ReportError(f"--step {asked}: its spans were left out; expected {text.steps(kept)}")
    return typical_step(run) if asked is None else asked

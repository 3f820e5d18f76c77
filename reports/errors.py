"""The mistakes that a reader of runs can make, each one sentence."""

from __future__ import annotations


class ReportError(Exception):
    """What was asked cannot be done: one sentence that names the folder, file or run."""


class NoStepError(ReportError):
    """A run in which no rank completed a step, where the times of steps are needed."""

"""Errors raised by readers of runs; the message of each error is one sentence."""

from __future__ import annotations


class ReportError(Exception):
    """An error of a reader of runs: one sentence that names the folder, file or run."""


class NoStepError(ReportError):
    """A `ReportError`: step times are needed, and no rank of the run completed a step."""

"""Compare scenarios' predicted and measured step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.analysis.repeats import Plays
from reports.analysis.statistics import Errors
from reports.compare.comparison import OPERATION_ERRORS, operation_errors
from reports.store.columns import frame_of_columns, frame_of_rows

# `error_of_step` is (predicted - measured) over the measured median of the whole step.
VALIDATED_OPERATIONS = {**OPERATION_ERRORS, "error_of_step": "float"}


@dataclass(frozen=True)
class Validation:
    """A scenario's validation; `predicted` or `measured` is None where no run completed, and `ended` states why.

    `is_too_noisy`: the measured median is not known as precisely as requested. Errors are predicted over measured
    median, minus 1.
    """

    name: str
    file: str
    digest: str
    library: str
    world_size: int
    steps: int
    predicted: Plays | None = None
    measured: Plays | None = None
    ended: str = ""
    is_too_noisy: bool = False

    @property
    def error(self) -> float:
        """The error; nan without both sides."""
        return self._error_against("median")

    @property
    def error_low(self) -> float:
        """The error if the measured median were at the upper end of its interval."""
        return self._error_against("median_high")

    @property
    def error_high(self) -> float:
        """The error if the measured median were at the lower end of its interval."""
        return self._error_against("median_low")

    @property
    def inside(self) -> bool | None:
        """Whether the measured median is within the predicted 10th to 90th percentile; None without both sides."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted.sample.low <= self.measured.sample.median <= self.predicted.sample.high

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Predicted and measured median of each operation of one rank in one step; the greatest differences first."""
        if self.predicted is None or self.measured is None:
            return frame_of_rows([], VALIDATED_OPERATIONS)
        both = operation_errors(self.predicted.operations, self.measured.operations)
        off = (both["predicted_ns"] - both["measured_ns"]).to_numpy(float) / self.measured.sample.median
        order = np.argsort(-np.abs(np.nan_to_num(off)), kind="stable")
        return frame_of_columns(both.assign(error_of_step=off).iloc[order], VALIDATED_OPERATIONS)

    def is_past(self, max_error: float) -> bool:
        """Return whether the error is known and greater than `max_error`."""
        return abs(self.error) > max_error  # False for nan

    def _error_against(self, name: str) -> float:
        if self.predicted is None or self.measured is None:
            return math.nan
        against: float = getattr(self.measured.sample, name)
        return self.predicted.sample.median / against - 1 if against else math.nan


def errors_of(validations: Sequence[Validation]) -> Errors:
    """Return the errors over all scenarios that have both sides."""
    return statistics.errors([one.error for one in validations if not math.isnan(one.error)])

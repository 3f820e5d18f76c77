"""Read the errors of predictions of measured steps: the evidence for the error range of a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from reports.analysis.prediction.grounds import GROUNDS

# Written by `python -m benchmarks.measured_steps --write`.
FILE = Path(__file__).with_name("measured_steps.csv")
# Two steps are similar if at most this share of one's time is priced by something else than the other's.
_MOST_APART = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured configuration of a training step; several systems may have run it.

    Attributes:
        gpu: the name of the GPU in its profile.
        error: predicted over the median of measured times, less 1.
        grounds: shares of the predicted step by how they were priced.
    """

    step: str
    source: str
    gpu: str
    error: float
    grounds: Mapping[str, float]

    @property
    def away(self) -> float:
        """The distance from the prediction to the measured step, as a share of the prediction."""
        return abs(1 / (1 + self.error) - 1)

    def is_like(self, grounds: Mapping[str, float]) -> bool:
        """Return whether the steps share at least half of their time by kind of price (law, roofline, ...)."""
        return sum(abs(self.grounds[by] - grounds[by]) for by in GROUNDS) / 2 <= _MOST_APART


@cache
def measured_steps() -> tuple[MeasuredStep, ...]:
    """Return all steps to which nothing of a profile or a law was fitted."""
    frame = pd.read_csv(FILE, comment="#")
    return tuple(
        MeasuredStep(
            step=str(row["step"]),
            source=str(row["source"]),
            gpu=str(row["gpu"]),
            error=float(row["error"]),
            grounds={by: float(row[by]) for by in GROUNDS},
        )
        for row in frame[~frame["fitted"].astype(bool)].to_dict("records")
    )

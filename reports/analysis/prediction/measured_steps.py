"""Split a predicted step's time by how it was priced, and read the errors of predictions of measured steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from reports.analysis.by_role import HOST
from reports.analysis.frames import COMPUTE
from reports.analysis.step_breakdown import typical_step
from reports.run import Run

TABLES, LAWS, ROOFLINES, MEASURED, RECURRENCES = "table", "law", "roofline", "measured", "recurrence"
HOSTS, WITHIN, BETWEEN = "host", "within", "between"
# Kernels by how the simulator prices them: measured one by one, corrected by measured ones near them, by a law, by a
# roofline, by the law of recurrent layers; then work of the host, then collectives within one host and between hosts.
GROUNDS = (MEASURED, TABLES, LAWS, ROOFLINES, RECURRENCES, HOSTS, WITHIN, BETWEEN)


def grounds(run: Run) -> dict[str, float] | None:
    """Return the share of a steady step's critical path by each of `GROUNDS`; shares add up to 1.

    Kernels with measured times (`run.compute_times`) and operators of a user's own table count as measured. None is
    returned where no spans are left, or no kernels were priced, as on CPUs.
    """
    step = typical_step(run)
    if step is None or not len(run.kernels):
        return None
    path = run.critical_path_of(step)
    part, share = path["part"].to_numpy(object), path["share"].to_numpy(float)
    launching = share * (path["launching_ns"] / path["duration_ns"].clip(lower=1)).to_numpy(float)
    computed, hosts = part == COMPUTE, part == HOST
    found = dict.fromkeys(GROUNDS, 0.0)
    found[HOSTS] = float(launching.sum() + share[hosts].sum())
    sent = float((share - launching)[~computed & ~hosts].sum())
    found[WITHIN if run.outline.hosts == 1 else BETWEEN] = sent
    kernels = run.kernels.groupby("priced_by")["share"].sum()
    whole = float(kernels.sum()) or 1.0
    own = float((share - launching)[computed].sum())
    for by, of in kernels.items():
        found[str(by)] += own * float(of) / whole
    return found


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

"""Combine several runs of one scenario into one sample: draws of the simulator, or rounds on real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from reports.analysis import statistics
from reports.analysis.frames import KEYS, STEP, ints
from reports.analysis.statistics import Sample
from reports.analysis.step_breakdown import check_steps, steady_steps, timed_steps
from reports.run import Run

OUTSIDE = "step skew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A run's durations: those of `timed_steps`, and each operation's median in its steady steps.

    An added operation of kind "step" is the time of a step before a rank begins its own or after it has ended it.
    """

    step_ns: tuple[int, ...]
    operations: pd.DataFrame

    @classmethod
    def of(cls, run: Run) -> Play:
        """Return the durations of a run.

        Raises:
            NoStepError: no rank completed a step.
        """
        check_steps(run)
        kept = steady_steps(run.steps)
        operations = run.operations_of(kept["step"].tolist())[[*KEYS, "part", "median_ns"]]
        operations = pd.concat([operations, _outside(run.outline.own, kept)], ignore_index=True)
        return cls(step_ns=tuple(map(int, timed_steps(run)["step_ns"])), operations=operations)


@dataclass(frozen=True)
class Plays:
    """A non-empty sequence of plays of one world."""

    each: Sequence[Play]

    @cached_property
    def sample(self) -> Sample:
        """The sample of the steps of all plays."""
        return statistics.sample([ns for play in self.each for ns in play.step_ns])

    @property
    def medians_ns(self) -> list[float]:
        """The median step time of each play, in ns."""
        return [statistics.sample(play.step_ns).median for play in self.each]

    @property
    def disagreement(self) -> float:
        """Half the difference between the largest and the least median of plays, as a share of their median."""
        return statistics.disagreement(self.medians_ns)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """The median of the plays' medians for each operation."""
        together = pd.concat([play.operations for play in self.each], ignore_index=True)
        return together.groupby([*KEYS, "part"], sort=True)["median_ns"].median().reset_index()

    def is_known_to(self, precision: float) -> bool:
        """Return whether the median's interval and the plays' own medians are within this share on either side.

        The interval assumes independent steps; steps of one process are correlated, so its width alone would trust a
        single play too much.
        """
        return self.sample.uncertainty <= precision and self.disagreement <= precision


def _outside(own: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    own = own[own["step"].isin(steps["step"])]
    whole_ns = own["step"].map(steps.set_index("step")["step_ns"])
    skew_ns = (whole_ns - (own["end_ns"] - own["start_ns"])).to_numpy(float)
    median_ns = float(np.median(np.repeat(skew_ns, ints(own, "rank_count"))))
    return pd.DataFrame([{"kind": STEP, "label": OUTSIDE, "stream": "main", "part": "host", "median_ns": median_ns}])

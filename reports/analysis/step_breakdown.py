"""How the ranks spent a typical step: its parts, and who had most of each. Frames only; layout is left to others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from reports.run import Run
from reports.store.columns import fixed

# Columns of `ranks`, with `outside_ns` beside them, and how a person calls them.
PARTS = {
    "compute_ns": "compute",
    "communication_ns": "communication",
    "hidden_ns": "hidden communication",
    "exposed_ns": "exposed communication",
    "idle_ns": "idle",
    "outside_ns": "outside its own",
}
SPENT = {
    "part": "str",
    **dict.fromkeys(["mean_ns", "share", "most_ns"], "float"),
    **dict.fromkeys(["rank", "rank_count"], "int"),
    "most_over_mean": "float",
}


def steady_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The complete steps of the last phase, where the run has become what it stays; all steps if none is complete."""
    complete = steps[steps["complete"]]
    complete = complete if len(complete) else steps
    last = (complete["phase"] == complete["phase"].max()).to_numpy(bool)
    kept: pd.DataFrame = complete.loc[last]
    return kept


def steady_kept(run: Run) -> list[int]:
    """The numbers of the steady steps of which there are spans: steps that do other things are not mixed in."""
    steady, kept = steady_steps(run.steps)["step"].tolist(), set(run.kept_steps["step"].tolist())
    return [step for step in steady if step in kept]


def parts_of_step(run: Run, steps: Sequence[int]) -> pd.DataFrame:
    """One row a part of a step, the mean over these steps and their ranks; no rows where no rank ended one.

    `part` is a value of `PARTS`; "outside its own" is what a rank waits because others begin the step earlier or end
    it later. `share` is of the whole step. `most_ns` is that of `rank`, which stands for `rank_count`;
    `most_over_mean` is nan where the mean is 0. Compute, exposed communication, idle and outside add up to the step.
    """
    ranks = run.ranks_of(steps)
    if not len(ranks):
        return fixed({name: [] for name in SPENT}, SPENT)
    whole = run.steps.loc[run.steps["step"].isin(steps).to_numpy(bool), "step_ns"].mean()
    count = ranks["steps"].clip(lower=1)
    each = ranks[[name for name in PARTS if name in ranks]].div(count, axis=0)
    each["outside_ns"] = (whole - ranks["step_ns"] / count).clip(lower=0)
    values = each[list(PARTS)].to_numpy(float)
    mean, worst = np.average(values, axis=0, weights=ranks["rank_count"]), values.argmax(axis=0)
    most = values.max(axis=0)
    columns = {
        "part": list(PARTS.values()),
        "mean_ns": mean,
        "share": mean / whole if whole else np.zeros(len(mean)),
        "most_ns": most,
        "rank": ranks["rank"].to_numpy()[worst],
        "rank_count": ranks["rank_count"].to_numpy()[worst],
        "most_over_mean": np.divide(most, mean, out=np.full(len(mean), np.nan), where=mean > 0),
    }
    return fixed(columns, SPENT)

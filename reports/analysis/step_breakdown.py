"""Choose the steps that represent a run, and break them down into their parts, over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.by_role import Utilisation, utilisation
from reports.errors import NoStepError, ReportError
from reports.run import Run
from reports.store.columns import frame_of_columns, frame_of_rows
from reports.terminal import text
from scenarios.seam.trace import LEAST_UNRECORDED

# Columns of `ranks_of_step` and the names of these parts: those that add up to the step, then those within them.
ADDING_UP = {
    "compute_ns": "compute",
    "transfer_ns": "exposed transfer",
    "wait_ns": "waiting for other ranks",
    "idle_ns": "idle",
    "skew_ns": "step skew",
}
PARTS = {
    **ADDING_UP,
    "communication_ns": "communication",
    "hidden_ns": "hidden communication",
    "exposed_ns": "exposed communication",
}
PARTS_OF_STEP = {
    "part": "str",
    **dict.fromkeys(["mean_ns", "share", "max_ns"], "float"),
    **dict.fromkeys(["rank", "rank_count"], "int"),
    "max_over_mean": "float",
}


def steady_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steady steps: complete ones of the last stable phase of the run; see `step_times.steps`."""
    kept: pd.DataFrame = steps[steps["steady"].to_numpy(bool)]
    return kept


def timed_steps(run: Run) -> pd.DataFrame:
    """Return the steps whose median is a run's step time, with the columns of `Run.steps`.

    Whatever shows, compares or sums step times uses these. A script's run has steps timed with the recording off, which
    are used if there are `LEAST_UNRECORDED`; else the steady steps are used. The work of unrecorded steps is unknown,
    so a further condition is that most steps from the first steady one on are steady.
    """
    unrecorded = unrecorded_steps(run)
    return unrecorded if len(unrecorded) else steady_steps(run.steps)


def step_time_ns(run: Run) -> float:
    """Return a run's step time: the median of `timed_steps`, or the mean over a period if replicas are averaged.

    Raises:
        NoStepError: no rank completed a step.
    """
    check_steps(run)
    return _unless_periodic(run, timed_steps(run)["step_ns"].median())


def mean_step_ns(run: Run) -> float:
    """Return the mean time of a run's steps: n steps take n times as long; nan if no rank completed a step."""
    return _unless_periodic(run, timed_steps(run)["step_ns"].mean())


def _unless_periodic(run: Run, step_ns: float) -> float:
    """Return `step_ns`, or the mean over a period if replicas are averaged."""
    period = sync_period(run)
    return float(step_ns) if period is None or not period.steps else period.mean_ns


def unrecorded_steps(run: Run) -> pd.DataFrame:
    """Return the `timed_steps` that were timed with the recording off; no rows where they are not used."""
    found = steady_steps(run.unrecorded_steps)
    numbers, steady = run.steps["step"], run.steps["steady"].to_numpy(bool)
    since = (numbers >= numbers[steady].min()).to_numpy(bool)
    is_usual = 2 * int(steady.sum()) > int(since.sum())
    is_enough = int(run.unrecorded_steps["complete"].sum()) >= LEAST_UNRECORDED
    return found if is_enough and is_usual else found.iloc[:0]


def why_no_step(run: Run) -> str:
    """Return advice for a run without steps (how a step begins), after a semicolon; "" if the run ended early."""
    if not run.info.complete or run.info.error:
        return ""
    if run.info.scenario.get("program") == "script":
        return "; one begins where the script's optimizer has stepped, and ends where it does so again"
    return "; the program enters none: expected 'with rank.step(index):' around each"


def check_steps(run: Run) -> None:
    """Check that a run has step times, for callers that compare, sum or fit them.

    Raises:
        NoStepError: no rank completed a step.
    """
    if not len(run.steps):
        raise NoStepError(f"no rank completed a step{why_no_step(run)}")


def steady_kept(run: Run) -> list[int]:
    """Return the numbers of the steady steps that have spans, so that steps with other work are not mixed in."""
    steady, kept = steady_steps(run.steps)["step"].tolist(), set(run.kept_steps["step"].tolist())
    return [step for step in steady if step in kept]


def typical_step(run: Run) -> int | None:
    """Return the steady step of median time among those with spans; None if there is none."""
    kept = run.kept_steps["step"].tolist()
    steady = steady_steps(run.steps)
    steady = steady[steady["step"].isin(kept)].sort_values(["step_ns", "step"])
    return int(steady["step"].iloc[(len(steady) - 1) // 2]) if len(steady) else None


def step_shown(run: Run, requested: int | None) -> int | None:
    """Return the requested step, or the typical one.

    Raises:
        ReportError: the run has no such step, or no longer has its spans.
    """
    numbers, kept = run.steps["step"].tolist(), run.kept_steps["step"].tolist()
    if requested is not None and requested not in numbers:
        known = f"steps {numbers[0]} to {numbers[-1]}" if numbers else "no steps"
        raise ReportError(f"--step {requested}: the run has {known}")
    if requested is not None and requested not in kept:
        raise ReportError(f"--step {requested}: its spans were left out; expected {text.steps(kept)}")
    return typical_step(run) if requested is None else requested


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPeriod:
    """A period of `every` steps, the last of which averages replicas of tables.

    `steps` are the averaging steps, `sync_ns` is their median time; `mean_ns` is the mean step time over a period, from
    the medians of both kinds of step, and `samples_per_s` follows from it. nan where the run lacks a kind of step.
    """

    every: int
    steps: tuple[int, ...]
    sync_ns: float
    mean_ns: float
    samples_per_s: float


def sync_period(run: Run) -> SyncPeriod | None:
    """Compare steps that average the replicas of tables with the steps between; None if no step or every step does."""
    every = run.sync_every
    if every < 2:
        return None
    done = run.steps[run.steps["complete"].to_numpy(bool)]
    settled = done[(done["step"] >= steady_steps(done)["step"].min()).to_numpy(bool)]
    for chosen in (settled, done):
        syncs = ((chosen["step"] + 1) % every == 0).to_numpy(bool)
        if syncs.any() and not syncs.all():
            break
    sync_ns, plain_ns = (float(chosen.loc[which, "step_ns"].median()) for which in (syncs, ~syncs))
    mean_ns = ((every - 1) * plain_ns + sync_ns) / every
    batch = np.nan if run.batch_size is None else run.batch_size * run.info.world_size
    return SyncPeriod(
        every=every,
        steps=tuple(chosen.loc[syncs, "step"].tolist()),
        sync_ns=sync_ns,
        mean_ns=mean_ns,
        samples_per_s=batch * 1e9 / mean_ns,
    )


def ranks_of_step(run: Run, steps: Sequence[int]) -> pd.DataFrame:
    """Return one row per rank: `rank`, `rank_count` and the columns of `PARTS`, as means over these steps.

    Step skew is the time in which a rank waits because others start the step earlier or end it later.
    """
    ranks = run.ranks_of(steps)
    whole = run.steps.loc[run.steps["step"].isin(steps).to_numpy(bool), "step_ns"].mean()
    count = ranks["steps"].clip(lower=1)
    each = ranks[[name for name in PARTS if name in ranks]].div(count, axis=0)
    skew = (whole - ranks["step_ns"] / count).clip(lower=0)
    return each.assign(skew_ns=skew, rank=ranks["rank"], rank_count=ranks["rank_count"])


def utilisation_of(run: Run) -> Utilisation | None:
    """Return the utilisation of GPUs in the median of `timed_steps`; None where no spans state FLOPs."""
    step_ns, kept = float(timed_steps(run)["step_ns"].median()), steady_kept(run)
    return utilisation(run.flops_of(kept), step_ns, run.info.scenario) if kept else None


def parts_of_step(run: Run, steps: Sequence[int]) -> pd.DataFrame:
    """Return one row per part of a step, the mean over these steps and their ranks; no rows without completed steps.

    `part` is a value of `PARTS`, `share` is of the whole step. `max_ns` is the time of `rank`, which represents
    `rank_count`; `max_over_mean` is nan where the mean is 0. Compute, exposed transfer, waiting, idle and step skew add
    up to the step.
    """
    each = ranks_of_step(run, steps)
    if not len(each):
        return frame_of_rows([], PARTS_OF_STEP)
    whole = run.steps.loc[run.steps["step"].isin(steps).to_numpy(bool), "step_ns"].mean()
    values = each[list(PARTS)].to_numpy(float)
    mean, worst = np.average(values, axis=0, weights=each["rank_count"]), values.argmax(axis=0)
    most = values.max(axis=0)
    columns = {
        "part": list(PARTS.values()),
        "mean_ns": mean,
        "share": mean / whole if whole else np.zeros(len(mean)),
        "max_ns": most,
        "rank": each["rank"].to_numpy()[worst],
        "rank_count": each["rank_count"].to_numpy()[worst],
        "max_over_mean": np.divide(most, mean, out=np.full(len(mean), np.nan), where=mean > 0),
    }
    return frame_of_columns(columns, PARTS_OF_STEP)

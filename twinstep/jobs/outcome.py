"""The outcome of simulated jobs: goodput, time, GPU hours, money and energy, and frames of draws, phases and curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.prediction.costs import price_of
from scenarios.config.hardware import Cluster
from scenarios.config.scenario import TrainingJob
from sim.job.closed_form import available_s, daly_s, goodput, young_s
from sim.job.model import LOSSES, JobModel
from sim.job.play import Played, play
from sim.job.sample import mean_goodput
from twinstep.jobs.model_of import HOUR_S

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_CURVE = 2.0 ** np.arange(-4, 4.5, 0.5)  # intervals of the curve, over the job's own


def draws_frame(model: JobModel, played: Sequence[Played]) -> pd.DataFrame:
    """Return a row for each job: seconds, steps, goodput, `lost_CAUSE_s`, and `count_KIND` of interruptions."""
    rows = [
        {
            "draw": draw,
            "seconds": one.seconds,
            "steps": one.steps,
            "goodput": one.steps * model.step_s / one.seconds,
            **{_lost(cause): seconds for cause, seconds in one.lost_s.items()},
            **{f"count_{kind}": count for kind, count in one.counts.items()},
        }
        for draw, one in enumerate(played)
    ]
    return pd.DataFrame(rows)


def summary(model: JobModel, draws: pd.DataFrame, samples: float) -> dict[str, Any]:
    """Return the job's goodput, time, samples, and shares lost by cause, as means over all time of all draws.

    `samples` are those of a step. Quantiles are of the draws.
    """
    seconds = draws["seconds"].sum()
    lost = {cause: float(draws[_lost(cause)].sum() / seconds) for cause in LOSSES}
    failures = {one.name: float(draws[f"count_{one.name}"].mean()) for one in model.interruptions}
    per_s = samples / model.step_s
    return {
        "goodput": float(draws["steps"].sum() * model.step_s / seconds),
        "goodput_quantiles": _quantiles(draws["goodput"]),
        "goodput_closed_form": goodput(model),
        "time_to_train_s": float(draws["seconds"].mean()),
        "time_to_train_s_quantiles": _quantiles(draws["seconds"]),
        "steps": float(draws["steps"].mean()),
        "samples": float(draws["steps"].mean()) * samples,
        "samples_per_s": per_s,
        "lost": lost,
        "failures": failures,
        "simulated_jobs": len(draws),
    }


def costs(cluster: Cluster, job: TrainingJob, seconds: float, samples: float) -> dict[str, float]:
    """Return GPU hours, dollars and kWh of a job; spare hosts are paid for. nan: no price or power is known.

    The energy is an upper bound: all GPUs and hosts at their maximal power all the time.
    """
    gpus = (cluster.hosts + job.spare_hosts) * cluster.host.gpus
    hours = gpus * seconds / HOUR_S
    usd, kwh = price_of({} if cluster.cost is None else asdict(cluster.cost), hours)
    return {
        "gpu_hours": hours,
        "usd": usd,
        "kwh": kwh,
        "usd_per_1e9": usd / samples * 1e9 if samples else math.nan,
    }


def typical(model: JobModel, draws: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the phases of the job whose goodput is nearest to the median."""
    off = (draws["goodput"] - draws["goodput"].median()).abs()
    again = play(model, seed, int(draws["draw"].iloc[int(off.argmin())]), keep=True)
    columns = ("begin_s", "end_s", "what", "hosts", "why")
    return pd.DataFrame([[getattr(one, name) for name in columns] for one in again.phases], columns=list(columns))


def intervals(model: JobModel, seed: int, timed: Callable[[JobModel], JobModel]) -> pd.DataFrame:
    """Return goodput by checkpoint interval, simulated with equal failures and by closed form.

    `is_own` marks the job's own interval; `timed` puts the times of checkpoints at an interval into a model.
    """
    tried = sorted({max(round(model.interval_steps * factor), 1) for factor in _CURVE})
    rows = []
    for steps in tried:
        one = timed(model.with_interval(steps))
        row = {"steps": steps, "seconds": steps * model.fed_step_s, "goodput": mean_goodput(one, seed)}
        rows.append({**row, "closed_form": goodput(one), "is_own": steps == model.interval_steps})
    return pd.DataFrame(rows)


def sizes(models: Mapping[int, JobModel], seed: int) -> pd.DataFrame:
    """Return goodput and time by number of hosts; `useful_hosts` is in hosts without losses."""
    rows = []
    for hosts, model in models.items():
        share = mean_goodput(model, seed)
        time_s = math.nan if math.isinf(model.steps) or not share else model.steps * model.step_s / share
        row = {"hosts": hosts, "gpus": hosts * model.gpus_per_host, "interval_steps": model.interval_steps}
        rows.append({**row, "goodput": share, "useful_hosts": hosts * share, "time_to_train_s": time_s})
    return pd.DataFrame(rows)


def rules(model: JobModel, best: int) -> dict[str, float]:
    """Return the best interval, in seconds of training, by each rule; nan without failures that are not planned.

    `best` is that of the closed form, in steps.
    """
    failures = [one for one in model.interruptions if not one.planned]
    rate = sum(one.per_s for one in failures)
    if not rate:
        return dict.fromkeys(("young", "daly", "availability", "closed_form"), math.nan)
    block_s, between_s = sum(model.writing.blocks_s) / len(model.writing.blocks_s), 1 / rate
    recovery_s = model.restart_s + model.writing.restore_s[0]
    recovery_s += sum(one.per_s * one.detection_s for one in failures) / rate
    return {
        "young": young_s(block_s, between_s),
        "daly": daly_s(block_s, between_s),
        "availability": available_s(block_s, between_s, recovery_s),
        "closed_form": best * model.fed_step_s,
    }


def _lost(cause: str) -> str:
    return f"lost_{cause.replace(' ', '_')}_s"


def _quantiles(values: Any) -> dict[str, float]:
    return {f"p{100 * share:g}": float(values.quantile(share)) for share in QUANTILES}

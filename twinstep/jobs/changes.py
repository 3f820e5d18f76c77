"""Changes that would raise a job's goodput, one at a time: of checkpoints, recovery or spare hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from scenarios.config.scenario import TrainingJob
from sim.job.model import JobModel
from sim.job.sample import mean_goodput
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.model_of import gives_interval

_QUICK_S = 60.0  # a heartbeat notices a failure within this time
_NOTHING = 0.0005


@dataclass(frozen=True, slots=True)
class _JobChange:
    """A change in words and the changed model; `jobs` has the times of its checkpoints at other intervals."""

    group: str
    words: str
    model: JobModel
    jobs: JobModels


def changes(model: JobModel, job: TrainingJob, jobs: JobModels, seed: int) -> pd.DataFrame:
    """Return changes with the goodput of each, the best first; `gain` is the goodput's difference.

    `group` is "free" for settings, "bought" for hosts and hardware. Every changed job has its best interval, unless the
    scenario gives one.
    """
    own = mean_goodput(model, seed)
    rows = []
    for one in _candidates(model, job, jobs):
        changed = one.jobs.timed(one.model) if gives_interval(job) else one.jobs.best(one.model)
        found = mean_goodput(changed, seed)
        if found - own >= _NOTHING:
            rows.append({"group": one.group, "change": one.words, "goodput": found, "gain": found - own})
    frame = pd.DataFrame(rows, columns=["group", "change", "goodput", "gain"])
    return frame.sort_values("gain", ascending=False, kind="stable").reset_index(drop=True)


def _candidates(model: JobModel, job: TrainingJob, jobs: JobModels) -> Iterator[_JobChange]:
    kinds = model.interruptions
    if any(one.detection_s > _QUICK_S for one in kinds):
        quick = tuple(replace(one, detection_s=min(one.detection_s, _QUICK_S)) for one in kinds)
        yield _JobChange("free", "failures noticed within 60 s", replace(model, interruptions=quick), jobs)
    if job.checkpoint.kind == "blocking" and (beside := jobs.asynchronous()) is not None:
        yield _JobChange("free", "checkpoint.kind = 'async'", model, beside)
    if any(one.loses_host for one in kinds):
        more = max(job.spare_hosts, 1)
        spares = replace(model, spares=model.spares + more)
        yield _JobChange("bought", f"spare_hosts = {job.spare_hosts + more}", spares, jobs)
        if model.replacement_s:
            yield _JobChange("bought", "standby = 'hot'", replace(model, replacement_s=0.0), jobs)
    if any(model.writing.blocks_s):
        yield _JobChange("bought", "checkpoints twice as fast", model, jobs.with_speed(2))
    if kinds:
        rare = tuple(replace(one, per_s=one.per_s / 2) for one in kinds)
        yield _JobChange("bought", "half as many failures", replace(model, interruptions=rare), jobs)

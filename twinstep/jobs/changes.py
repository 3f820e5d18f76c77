"""What would raise a job's goodput: one change at a time of its checkpoints, its recovery or its spare hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from scenarios.config.scenario import TrainingJob
from sim.job.closed_form import best_interval
from sim.job.model import CheckpointTimes, JobModel
from sim.job.sample import mean_goodput
from twinstep.jobs.job_models import JobModels
from twinstep.jobs.model_of import gives_interval

_QUICK_S = 60.0  # a heartbeat notices a failure within this time
_NOTHING = 0.0005


def changes(model: JobModel, job: TrainingJob, jobs: JobModels, seed: int) -> pd.DataFrame:
    """Return changes with the goodput of each, the best first; `gain` is the goodput's difference.

    `group` is "free" for settings, "bought" for hosts and hardware. Every changed job has its best interval, unless the
    scenario gives one.
    """
    own = mean_goodput(model, seed)
    rows = []
    is_best = not gives_interval(job)
    for group, change, changed in _candidates(model, job, jobs):
        found = mean_goodput(changed.with_interval(best_interval(changed)) if is_best else changed, seed)
        if found - own >= _NOTHING:
            rows.append({"group": group, "change": change, "goodput": found, "gain": found - own})
    frame = pd.DataFrame(rows, columns=["group", "change", "goodput", "gain"])
    return frame.sort_values("gain", ascending=False, kind="stable").reset_index(drop=True)


def _candidates(model: JobModel, job: TrainingJob, jobs: JobModels) -> Iterator[tuple[str, str, JobModel]]:
    kinds, writing = model.interruptions, model.writing
    if any(one.detection_s > _QUICK_S for one in kinds):
        quick = tuple(replace(one, detection_s=min(one.detection_s, _QUICK_S)) for one in kinds)
        yield "free", "failures noticed within 60 s", replace(model, interruptions=quick)
    if job.checkpoint.kind == "blocking" and (beside := jobs.asynchronous(model)) is not None:
        yield "free", "checkpoint.kind = 'async'", beside
    if any(one.loses_host for one in kinds):
        more = max(job.spare_hosts, 1)
        yield "bought", f"spare_hosts = {job.spare_hosts + more}", replace(model, spares=model.spares + more)
        if model.replacement_s:
            yield "bought", "standby = 'hot'", replace(model, replacement_s=0.0)
    if any(writing.blocks_s):
        fast = CheckpointTimes(
            blocks_s=tuple(seconds / 2 for seconds in writing.blocks_s),
            background_s=tuple(seconds / 2 for seconds in writing.background_s),
            restore_s=tuple(seconds / 2 for seconds in writing.restore_s),
        )
        yield "bought", "checkpoints twice as fast", replace(model, writing=fast)
    if kinds:
        rare = tuple(replace(one, per_s=one.per_s / 2) for one in kinds)
        yield "bought", "half as many failures", replace(model, interruptions=rare)

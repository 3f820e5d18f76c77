"""A job that cannot be played is refused in a sentence."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.seam.errors import ScenarioError
from twinstep.jobs.job_prediction import job_of_scenario

HOPELESS = """
run.batch_size = 4
cluster = {profile = "dgx_h100", hosts = 16}
[job]
samples = 1e7
step = "4.6 s"
checkpoint = {write = "30 s", interval = "2 h"}
failures = {profile = "rsc1_a100", scale = 5000}
"""


def test_a_job_that_never_saves_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(HOPELESS)
    with pytest.raises(ScenarioError) as refused:
        job_of_scenario(partial(load, file))
    why = "after 10,000 interruptions goodput is below 0.1%"
    assert str(refused.value) == f"{file}: job.failures: expected rarer failures or more frequent checkpoints, as {why}"

"""Runs a program of probes on real ranks and returns its recording; shared by all calibrations."""

from __future__ import annotations

import pickle
from pathlib import Path

from real.launch.launcher import Hosts, job_of, launch
from scenarios.config.hardware import Cluster
from scenarios.config.interconnect import default_library
from scenarios.config.scenario import RunSettings, Scenario
from scenarios.owned_folder import scratch_folder
from scenarios.progress_line import ProgressLine
from scenarios.seam.trace import Recording

_TIMEOUT_S = 120.0
KEEP = "real.calibration.play:keep"  # for `job_of`


def scenario_on(cluster: Cluster, name: str, *, steps: int = 1) -> Scenario:
    """Return a scenario for probes, which look at its cluster and, some of them, at its steps."""
    return Scenario(
        name=name,
        path=Path(f"{name}.toml"),
        program="all_to_all",  # does not run: the job names its own program
        cluster=cluster,
        run=RunSettings(library=default_library(cluster.host.gpu.kind), steps=steps, timeout_s=_TIMEOUT_S),
    )


def play(bar: ProgressLine, scenario: Scenario, program: str, hosts: Hosts, *, steps: int | None) -> Recording:
    """Return the recording of ranks that run the program "module:function" on the scenario.

    `steps`, where known, are for the progress bar.

    Raises:
        RunEnded: the run ended early.
    """
    with scratch_folder() as folder:
        out = Path(folder, scenario.name)
        job = job_of(scenario, out, program=program, writer=KEEP, check="never")
        launch(job, hosts=hosts, heard=lambda step: bar.show(scenario.name, step, steps))
        return read_kept(out)


_NAME = "recording"


def keep(recording: Recording, out: Path, spool: Path) -> None:
    """Store a recording in the folder; a `Job.writer`."""
    out.mkdir()
    (out / _NAME).write_bytes(pickle.dumps(recording))


def read_kept(out: Path) -> Recording:
    """Read the recording that `keep` has stored; unpickling runs code."""
    recording = pickle.loads((out / _NAME).read_bytes())
    assert isinstance(recording, Recording), "rank 0 keeps recordings"
    return recording

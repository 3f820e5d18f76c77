"""A rank's process: reads its environment, serves its job, and ends."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from real.launch.job import Job, load
from real.launch.placement import JOB, Place, check_world_size, place
from real.machine import allow_open_files
from scenarios.interruption import code_of, end
from scenarios.seam.errors import ScenarioError, show_notes


def is_rank_of_launcher() -> bool:
    """Return whether the project's launcher has started this process and given it a job."""
    return JOB in os.environ


def main() -> int:
    """Serve the launcher's job; return the exit code, as `twinstep.measurement.main` does."""
    try:
        show_notes()
        here = place()
        assert here is not None, "the launcher gives its ranks a place"
        serve(load(Path(os.environ[JOB])), here)
    except KeyboardInterrupt as interruption:
        return code_of(interruption)
    return 0


def serve(job: Job, here: Place) -> Path | None:
    """Run the job as the rank at that place; return the run's folder on rank 0 of torchrun and srun, else None."""
    check_world_size(job.scenario, here)
    allow_open_files(job.scenario.cluster)
    from real.launch.worker import RankWorker  # noqa: PLC0415  (loads torch, which takes longer than the checks above)

    warnings.simplefilter("default")
    return RankWorker(job, here).serve()


def place_if_known() -> Place | None:
    """Return this process's place; None if no launcher gives one, or if it is wrong (other calls report that)."""
    try:
        return place()
    except ScenarioError:
        return None


def end_process(command: Callable[[], int]) -> NoReturn:
    """Exit with the command's code without waiting for a rank's threads (gloo's, the control channel's)."""
    end(command, leave)


def leave(code: int) -> NoReturn:
    """Exit with a code; at once where this process is a rank (see `end_process`)."""
    # `os._exit` flushes nothing.
    sys.stdout.flush()
    sys.stderr.flush()
    if place_if_known() is not None:
        os._exit(code)
    sys.exit(code)

"""Writes what was measured when a run ends early, with the sentence that says why."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from real.launch.job import Job

# What ranks print, and their tracebacks.
LOG = "rank-{}.log"


def keep_what_there_is(job: Job, sentence: str, began_s: float) -> str:
    """Write the incomplete run from the ranks' spools; the sentence, with a further one if that fails too."""
    from real.libraries import library_of  # noqa: PLC0415
    from real.supervise import spool  # noqa: PLC0415  (imports torch, which a launcher needs only now)
    from real.supervise.merge import merge  # noqa: PLC0415

    try:
        spools = {rank: spool.read(job.spool, rank) for rank in range(job.scenario.cluster.world_size)}
        elapsed_s = time.monotonic() - began_s
        lanes = library_of(job.scenario.library).lanes
        job.write(merge(job, spools, lanes=lanes, elapsed_s=elapsed_s, error=sentence))
    except Exception as error:
        return f"{sentence}; {job.out}: what was measured could not be written: {error}; it lies in {job.spool}"
    put_away(job)
    return sentence


def put_away(job: Job) -> None:
    """Copy the ranks' logs that are not empty into the run's folder, and remove the spools."""
    for log in sorted(job.spool.glob(LOG.format("*"))):
        if log.stat().st_size and job.out.is_dir():
            with suppress(OSError):  # a log that cannot be kept is no reason to fail
                shutil.copyfile(log, job.out / log.name)
    shutil.rmtree(job.spool, ignore_errors=True)


def log_of(folder: Path, rank: int) -> Path:
    """The path of a rank's log."""
    return folder / LOG.format(rank)

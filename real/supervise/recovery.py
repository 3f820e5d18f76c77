"""Turns the spools that a killed launcher has left behind into an incomplete run."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import sys
import time
from datetime import datetime
from pathlib import Path

from real.launch.job import Job, load
from real.supervise.rank_status import where
from real.supervise.spool import JOB_FILE, WRITTEN, open_steps, put_away, read
from scenarios.seam.errors import ProgramError

# Time for ranks that were just asked to stop to spool the rest, at most.
_SPOOLING_S = 0.5
_SPOOL = re.compile(r"\..+\.(\d+)\.spool", re.DOTALL)


def find_left_behind(folder: Path) -> list[Path]:
    """Return the spool folders in a folder whose launcher, or rank 0, is gone from this machine."""
    return [path for path in sorted(folder.glob(".*.spool")) if (path / JOB_FILE).is_file() and not writer_of(path)]


def recover(path: Path) -> tuple[Path, str]:
    """Write the run of a spool folder, or of the spool folder next to the run's intended path; return the run's folder
    and why it ended.

    Raises:
        ProgramError: there is no spool folder, or there are several; it is still written to, or cannot become a run.
    """
    spool = path if (path / JOB_FILE).is_file() else _beside(path)
    if (writer := writer_of(spool)) is not None:
        raise ProgramError(f"{spool}: process {writer} is still writing it; expected a run whose launcher is gone")
    try:
        job = load(spool / JOB_FILE)
    except Exception as error:  # unpickling may raise anything
        raise ProgramError(f"{spool / JOB_FILE}: not readable by this release: {type(error).__name__}") from error
    # The folder may have been moved, or be mounted elsewhere, since the run.
    job = dataclasses.replace(job, spool=spool, out=spool.parent / job.out.name)
    if os.path.lexists(job.out):
        raise ProgramError(f"{job.out}: exists already; nothing is ever overwritten, expected it to be moved away")
    sentence = write_incomplete_run(job, _sentence(job), _elapsed_s(job))
    if spool.exists():
        raise ProgramError(sentence)
    return job.out, sentence


def write_incomplete_run(job: Job, sentence: str, elapsed_s: float) -> str:
    """Write the incomplete run from the ranks' spools, unless the whole run is stored; return the sentence.

    If writing fails too, the sentence says so, and the spools stay.
    """
    from real.libraries import library_of  # noqa: PLC0415
    from real.supervise.merge import merge  # noqa: PLC0415  (imports torch, which a launcher needs only now)

    if (job.spool / WRITTEN).exists():
        put_away(job)
        return sentence
    try:
        spools = {rank: read(job.spool, rank) for rank in range(job.scenario.cluster.world_size)}
        lanes = library_of(job.scenario.run.library).lanes
        job.write(merge(job, spools, lanes=lanes, elapsed_s=elapsed_s, error=sentence))
    except Exception as error:
        return f"{sentence}; {job.out}: what was measured could not be written: {error}; it lies in {job.spool}"
    put_away(job)
    return sentence


def write_what_is_left(job: Job, sentence: str, began_s: float) -> None:
    """Write the incomplete run once the ranks, which were just stopped, have spooled the rest; print the sentence."""
    time.sleep(_SPOOLING_S)
    print(write_incomplete_run(job, sentence, time.monotonic() - began_s), file=sys.stderr, flush=True)


def _beside(path: Path) -> Path:
    spools = sorted(path.parent.glob(f".{glob.escape(path.name)}.*.spool"))
    if len(spools) == 1:
        return spools[0]
    spools_found = (
        f"there are {', '.join(map(str, spools))}" if spools else f"there is no {path.parent}/.{path.name}.*.spool"
    )
    raise ProgramError(f"{path}: {spools_found}; expected the spool folder of a run whose launcher was killed")


def writer_of(spool: Path) -> int | None:
    """Return the process that a spool folder is named after; None if no such process runs."""
    match = _SPOOL.fullmatch(spool.name)
    if match is None:
        return None
    try:
        os.kill(int(match[1]), 0)
    except (ProcessLookupError, OverflowError):
        return None
    # A process of another user: it lives, which is all that is asked.
    except PermissionError:
        pass
    return int(match[1])


def _sentence(job: Job) -> str:
    steps = open_steps(job.spool)
    last = [step for step in (steps.of_all() if steps else []) if step is not None]
    return f"the launcher was lost {where(max(last, default=None))}"


def _elapsed_s(job: Job) -> float:
    """Return the seconds from the run's start to the last write to a spool."""
    last_s = max(path.stat().st_mtime for path in job.spool.iterdir() if path.is_file())  # no drafts
    return max(0.0, last_s - datetime.fromisoformat(job.started).timestamp())

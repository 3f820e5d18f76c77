"""A scenario on real ranks, round after round; how many rounds are enough is left to the caller."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

from real.launch.job import PROGRAM, WRITER, Job
from real.launch.launcher import Hosts, launch, spool_folder
from real.launch.placement import Place, check_world_size
from scenarios.config.scenario import Scenario

_LAST = "measured"


def rounds(
    scenario: Scenario, folder: Path, hosts: Hosts, heard: Callable[[int, int], None], program: str = PROGRAM
) -> Iterator[Path]:
    """Launch the scenario for each item asked for: the run's folder, `folder`/measured, in place of the one before.

    `heard` is told the round, counted from 1, and which step a rank is in.

    Raises:
        RunEnded: as `launch` does; what was measured of that round lies in `folder`/round-N.
    """
    for number in count(1):
        out, last = folder / f"round-{number}", folder / _LAST
        launch(_job(scenario, out, program), hosts=hosts, heard=partial(heard, number))
        shutil.rmtree(last, ignore_errors=True)
        yield out.rename(last)


def one_round(scenario: Scenario, folder: Path, here: Place) -> Path | None:
    """Be one rank of the only round; its folder on rank 0, which writes it, None on the others.

    Raises:
        ScenarioError: other ranks were started than the scenario has.
        SystemExit: with 1, when the run is over before its end; whoever is to say so has said it.
    """
    from real.launch.worker import Station  # noqa: PLC0415  (loads torch, after all mistakes are said)

    check_world_size(scenario, here)
    return Station(_job(scenario, folder / _LAST, PROGRAM), here).serve()


def _job(scenario: Scenario, out: Path, program: str) -> Job:
    return Job(
        scenario=dataclasses.replace(scenario, payload="values", ranks="each"),
        program=program,
        writer=WRITER,
        out=out,
        spool=spool_folder(out),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        check="never",
    )

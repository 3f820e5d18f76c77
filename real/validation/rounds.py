"""Runs a scenario on real ranks, round after round."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from real.launch.job import PROGRAM
from real.launch.launcher import Hosts, job_of, launch
from real.launch.placement import Place, check_world_size
from scenarios.config.scenario import Scenario

_LAST = "measured"


def launched_rounds(
    scenario: Scenario, folder: Path, hosts: Hosts, heard: Callable[[int, int], None], *, program: str = PROGRAM
) -> Iterator[Path]:
    """Launch the scenario once for each item; yields the run's folder, `folder`/measured, which each round replaces.

    `heard` gets the round, counted from 1, and the step of the foremost rank.

    Raises:
        RunEnded: as `launch` does; what was measured of that round lies in `folder`/round-N.
    """
    for number in count(1):
        out, last = folder / f"round-{number}", folder / _LAST
        launch(job_of(scenario, out, program=program, check="never"), hosts=hosts, heard=partial(heard, number))
        shutil.rmtree(last, ignore_errors=True)
        yield out.rename(last)


def one_round(scenario: Scenario, folder: Path, here: Place) -> Path | None:
    """Run this process as one rank of the only round; the run's folder on rank 0, which writes it, else None.

    Raises:
        ScenarioError: other ranks were started than the scenario has.
        SystemExit: with 1, when the run ended early; the sentence has been printed.
    """
    from real.launch.worker import RankWorker  # noqa: PLC0415  (loads torch, after all mistakes are said)

    check_world_size(scenario, here)
    return RankWorker(job_of(scenario, folder / _LAST, check="never"), here).serve()

"""A worker's task and result for one point: plain values, so that any worker may simulate any point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from sim.rank.observed import Rewrite, as_it_is
from twinstep.studies.study_file import Keep

Status = Literal["done", "scenario error", "program error", "timed out", "worker lost", "error", "not tried"]
ESTIMATE = "estimate"
Speeds = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A point to simulate, or to estimate only."""

    scenario: Scenario
    fidelity: str
    timeout_s: float
    keep: Keep
    draws: int = 0  # beside the mean one
    program: Program | None = None  # of this process, in place of a newly built program
    rewrite: Rewrite = as_it_is
    measures_draw_0: bool = False  # the other draws count only in `Result.speeds`


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An outcome of a point: `measures` are numbers by column, `folder` a run folder as a tar archive.

    Attributes:
        speeds: samples per second of steady steps, or steps per second without samples; a sequence for each draw.
        places: a digest of each table's places, by its name.
    """

    status: Status
    sentence: str = ""
    seconds: float = 0.0
    worker: str = ""  # its address
    measures: Mapping[str, object] = field(default_factory=dict)
    folder: bytes = b""
    speeds: Speeds = ()
    places: Mapping[str, str] = field(default_factory=dict)

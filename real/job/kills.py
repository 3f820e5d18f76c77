"""Kills of a job: which rank or host, and when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.config.hardware import Cluster
from scenarios.config.scenario.job import Failures
from scenarios.config.units import parse_time
from scenarios.seam.errors import ScenarioError

_KILL = re.compile(r"(?:step *(?P<step>\d+)|(?P<at>[^:]+?)) *: *(?P<what>rank|host) *(?P<number>\d+)")
_EXAMPLES = "a moment and a process such as '12s:rank3' or 'step40:host1'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A rank or host to be killed, `at_s` seconds after the first step began, or when it begins `step`.

    `kind` is the name of the kind of failure, by which predictions find the recovery.
    """

    what: str  # "rank" or "host"
    number: int
    at_s: float | None = None
    step: int | None = None
    kind: str = ""
    given: str = ""  # as the user wrote it

    @property
    def name(self) -> str:
        """The name of its kind: "rank" and "host" if no other is known."""
        return self.kind or self.what

    def __str__(self) -> str:
        if self.given:
            return self.given
        moment = f"step{self.step}" if self.at_s is None else f"{self.at_s:g}s"
        return f"{moment}:{self.what}{self.number}"


def parse_kill(text: str, cluster: Cluster, steps: int) -> Kill:
    """Return the kill that `--kill` asks for.

    Raises:
        ScenarioError: the text is no kill, or no such rank, host or step exists.
    """
    match = _KILL.fullmatch(text.strip())
    at_s = None
    if match is not None and match["at"] is not None:
        try:
            at_s = parse_time(re.sub(r"(\d)([a-z])", r"\1 \2", match["at"].strip())) / 1e9
        except ValueError:
            match = None
    if match is None:
        raise ScenarioError(f"--kill = '{text}': expected {_EXAMPLES}")
    number = int(match["number"])
    there = cluster.world_size if match["what"] == "rank" else cluster.hosts
    if number >= there:
        raise ScenarioError(f"--kill = '{text}': expected {match['what']} 0 to {there - 1}")
    step = None if match["step"] is None else int(match["step"])
    if step is not None and step >= steps:
        raise ScenarioError(f"--kill = '{text}': expected step 0 to {steps - 1}, as the job ends after {steps} steps")
    return Kill(what=match["what"], number=number, at_s=at_s, step=step, given=text.strip())


def draw_kills(failures: Failures, cluster: Cluster, seed: int, within_s: float) -> list[Kill]:
    """Draw the kills of a job that lasts `within_s` seconds; a kind that loses its host kills one, others a rank.

    Planned kinds are left out: nobody kills a rank for maintenance.
    """
    rng = np.random.default_rng(seed)
    found = []
    for kind in failures.kinds:
        if kind.planned:
            continue
        what, there = ("host", cluster.hosts) if kind.loses_host else ("rank", cluster.world_size)
        per_s = kind.per_s(cluster.hosts, cluster.world_size) * failures.scale
        for _ in range(int(rng.poisson(per_s * within_s))):
            at_s = float(rng.uniform(0, within_s))
            found.append(Kill(what=what, number=int(rng.integers(there)), at_s=at_s, kind=kind.name))
    return in_order(found)


def in_order(kills: Sequence[Kill]) -> list[Kill]:
    """Return the kills of each kind of moment in order."""
    return sorted(kills, key=lambda kill: (kill.at_s or 0.0, kill.step or 0))

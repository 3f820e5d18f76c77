"""A scenario's runs as they would vary on real hosts: several draws, where there is anything to draw."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.rank import Program
from scenarios.scenario import Scenario
from scenarios.trace import Recording
from sim.run import simulate


def draws(scenario: Scenario, program: Program, count: int) -> Iterator[Recording]:
    """Draw 0, then draws 1 to `count`; draw 0 alone where draw 1 is the same, as nothing varies then.

    Raises:
        ProgramError: as `simulate` does.
    """
    first = simulate(scenario, program)
    yield first
    for draw in range(1, count + 1):
        recording = simulate(scenario, program, draw)
        if draw == 1 and recording.spans == first.spans:
            return
        yield recording

"""Repeats a simulation with other random draws, where the scenario has anything that varies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording, Span
from sim.rank.observed import Observed, Rewrite, as_it_is
from sim.run import Position, play, simulate
from sim.span_filter import Keeping


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


class Digest:
    """Hashes a simulation's spans, so that two simulations can be compared without keeping them."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, spans: Sequence[Span]) -> None:
        """Add further spans, in the order in which `play` gives them."""
        self.value = hash((self.value, *spans))


def digest_of(
    scenario: Scenario,
    program: Program,
    *,
    look: Callable[[Callable[[], Position]], None],
    observed: Observed | None = None,
) -> Digest:
    """Simulate draw 0 for its digest alone; `look` as in `further_draws`, `observed` as in `play`.

    Raises:
        ProgramError: as `simulate` does.
    """
    return _steps_of_draw(scenario, program, 0, look, observed=observed)[1]


def further_draws(
    scenario: Scenario,
    program: Program,
    count: int,
    first: Digest,
    *,
    look: Callable[[Callable[[], Position]], None],
    rewrite: Rewrite = as_it_is,
) -> Iterator[Recording]:
    """Draws 1 to `count`, with the steps' own spans alone; none where draw 1 is the same as draw 0, whose digest is
    `first`. `look` is called again and again, with what says how far the draw is; `rewrite` as in `play`.

    Raises:
        ProgramError: as `simulate` does.
    """
    for draw in range(1, count + 1):
        recording, digest = _steps_of_draw(scenario, program, draw, look, rewrite)
        if draw == 1 and digest.value == first.value:
            return
        yield recording


def _steps_of_draw(
    scenario: Scenario,
    program: Program,
    draw: int,
    look: Callable[[Callable[[], Position]], None],
    rewrite: Rewrite = as_it_is,
    observed: Observed | None = None,
) -> tuple[Recording, Digest]:
    keeping, digest, spans = Keeping(ranks=frozenset()), Digest(), list[Span]()

    def take(each: list[Span]) -> None:
        digest.add(each)
        spans.extend(keeping.of(each))

    def stop(where: Callable[[], Position]) -> bool:
        look(where)
        return False

    recording = play(scenario, program, take, draw=draw, rewrite=rewrite, observed=observed, stop=stop)
    info = dataclasses.replace(recording.info, thinned=keeping.thinned)
    return dataclasses.replace(recording, info=info, spans=spans), digest

"""Repeats a simulation with other random draws, where the scenario has any variation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from scenarios.config.scenario import Scenario
from scenarios.do_nothing import do_nothing
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording, Span
from sim.rank.observed import Observed, Rewrite, as_it_is
from sim.run import Beside, RunProgress, play, simulate
from sim.span_filter import Keeping


def draws(scenario: Scenario, program: Program, count: int) -> Iterator[Recording]:
    """Yield draw 0, then draws 1 to `count`; draw 0 alone if draw 1 equals it, as nothing varies then.

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
    """A hash of a simulation's spans, to compare two simulations without keeping them."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, spans: Sequence[Span]) -> None:
        """Fold the next spans into the hash; the order of calls counts."""
        self.value = hash((self.value, *spans))


def digest_of(
    scenario: Scenario,
    program: Program,
    *,
    look: Callable[[Callable[[], RunProgress]], None],
    observed: Observed | None = None,
) -> Digest:
    """Simulate draw 0 and return the digest of its spans; `look` as in `further_draws`, `observed` as in `play`.

    Raises:
        ProgramError: as `simulate` does.
    """
    return steps_of_draw(scenario, program, 0, look, observed=observed)[1]


def further_draws(
    scenario: Scenario,
    program: Program,
    count: int,
    first: Digest,
    *,
    look: Callable[[Callable[[], RunProgress]], None],
    rewrite: Rewrite = as_it_is,
) -> Iterator[Recording]:
    """Yield draws 1 to `count` with their step spans only; no draw at all if draw 1 equals draw 0.

    Args:
        first: digest of draw 0.
        look: called again and again, with a function that returns the position of the draw.
        rewrite: as in `play`.

    Raises:
        ProgramError: as `simulate` does.
    """
    for draw in range(1, count + 1):
        recording, digest = steps_of_draw(scenario, program, draw, look, rewrite)
        if draw == 1 and digest.value == first.value:
            return
        yield recording


def steps_of_draw(
    scenario: Scenario,
    program: Program,
    draw: int = 0,
    look: Callable[[Callable[[], RunProgress]], None] = lambda _: None,
    rewrite: Rewrite = as_it_is,
    observed: Observed | None = None,
    beside: Beside = lambda _: do_nothing,
) -> tuple[Recording, Digest]:
    """Simulate a draw, `beside` as in `play`; return its recording with step spans only, and the digest of all spans.

    Raises:
        ProgramError: as `simulate` does.
    """
    keeping, digest, spans = Keeping(ranks=frozenset()), Digest(), list[Span]()

    def take(each: list[Span]) -> None:
        digest.add(each)
        spans.extend(keeping.of(each))

    def stop(where: Callable[[], RunProgress]) -> bool:
        look(where)
        return False

    recording = play(scenario, program, take, draw=draw, rewrite=rewrite, observed=observed, stop=stop, beside=beside)
    info = dataclasses.replace(recording.info, thinned=keeping.as_thinned)
    return dataclasses.replace(recording, info=info, spans=spans), digest

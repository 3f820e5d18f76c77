"""Plays the cases of a file in a world, many in one play, because a play costs more than most cases do.

A case that breaks its ranks does not take the others along: they are then played again, each alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.seam.rank import Rank
from scenarios.seam.trace import Span
from tests.contract.scripts import Script
from tests.contract.worlds import WORLDS, scenario

Body = Callable[..., Awaitable[Any]]

# So many cases share a play: enough to hide its cost, few enough to end in time and to repeat when one goes wrong.
TOGETHER = 25


@dataclass(frozen=True)
class Outcome:
    """What a case returned on each rank, and the spans of each rank, in the order of issue."""

    returned: list[Any]
    spans: list[list[Span]]


@dataclass(frozen=True)
class Part:
    """One case: `await body(rank, *given)` on every rank; both travel to processes as pickles."""

    body: Body
    given: tuple[object, ...]


@dataclass
class Batch:
    """Cases for the same ranks of one world; played when the first outcome is asked for."""

    world: str
    hosts: int
    gpus_per_host: int
    timeout_s: float = 20.0
    parts: list[Part] = field(default_factory=list)
    outcomes: dict[int, Outcome | Exception] = field(default_factory=dict)

    def add(self, body: Body, *given: object) -> Callable[[], Outcome]:
        """The outcome of a further case, when asked for; raises what the case raised."""
        index = len(self.parts)
        self.parts.append(Part(body, given))
        return lambda: self._outcome(index)

    def _outcome(self, index: int) -> Outcome:
        if index not in self.outcomes:
            first = index - index % TOGETHER
            played = self._isolate(self.parts[first : first + TOGETHER])
            self.outcomes.update(enumerate(played, first))
        found = self.outcomes[index]
        if isinstance(found, Exception):
            raise found
        return found

    def _isolate(self, parts: Sequence[Part]) -> Sequence[Outcome | Exception]:
        try:
            return self._play(parts)
        except Exception as error:
            return [error] if len(parts) == 1 else [self._isolate([part])[0] for part in parts]

    def _play(self, parts: Sequence[Part]) -> list[Outcome]:
        script = Script(one_after_the_other, (parts,))
        recording = WORLDS[self.world](script, scenario(self.hosts, self.gpus_per_host, timeout_s=self.timeout_s))
        ranks = range(self.hosts * self.gpus_per_host)
        spans: list[list[list[Span]]] = [[[] for _ in ranks] for _ in parts]
        for span in sorted(recording.spans, key=lambda span: (span.stream, span.sequence)):
            if span.kind != "step":
                spans[span.step][span.rank].append(span)
        return [Outcome([script.returned[rank][index] for rank in ranks], spans[index]) for index in range(len(parts))]


async def one_after_the_other(rank: Rank, parts: Sequence[Part]) -> list[Any]:
    """Each case is a step, so that its spans can be told from the others'."""
    returned = []
    for index, part in enumerate(parts):
        with rank.step(index):
            returned.append(await part.body(rank, *part.given))
    return returned

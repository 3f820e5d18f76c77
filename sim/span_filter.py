"""Filters the spans of a large prediction by chosen ranks and steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from scenarios.seam.errors import ScenarioError
from scenarios.seam.steady_steps import Work, steady_steps
from scenarios.seam.trace import Span, Thinned

_STEP = "step"
_WORDS = "numbers and ranges such as '0,8,16-23', 'every:64', 'all' or 'none'"


def numbers_of_option(option: str, words: str, count: int) -> frozenset[int] | None:
    """Return the numbers below `count` that the value of a command-line option names; None means all.

    Raises:
        ScenarioError: the value has none of the forms.
    """

    def refuse(expected: str) -> ScenarioError:
        return ScenarioError(f"{option} = {words!r}: expected {expected}")

    if words in ("all", "none"):
        return None if words == "all" else frozenset()
    if found := re.fullmatch(r"every:([0-9]{1,9})", words):
        if not int(found[1]):
            raise refuse("'every:' and at least 1")
        return frozenset(range(0, count, int(found[1])))
    numbers: set[int] = set()
    for part in words.split(","):
        bounds = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if bounds is None:
            raise refuse(_WORDS)
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if not first <= last < count:
            raise refuse(f"numbers from 0 to {count - 1}, ranges upwards")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


class Keeping:
    """A filter that passes step spans and the spans of chosen ranks in chosen steps, and counts the others.

    A choice of steps leaves out spans outside of steps. None chooses all.
    """

    def __init__(self, ranks: frozenset[int] | None = None, steps: frozenset[int] | None = None) -> None:
        self._ranks, self._steps = ranks, steps
        self._keeps_all = ranks is None and steps is None
        self._left_out = 0
        self._works: dict[Work, int] = {}
        self._used: dict[int, tuple[int, int]] = {}  # step -> which of `_works`, and how many ranks ended it

    def restrict(self, ranks: Sequence[int], given: str) -> Keeping:
        """Return the choice restricted to the simulated ranks, with no spans counted yet.

        `given` is the user's spelling, for the error.

        Raises:
            ScenarioError: ranks were chosen, and none of them is simulated.
        """
        if self._ranks is None:
            return self
        kept = self._ranks.intersection(ranks)
        if self._ranks and not kept:
            shown = ", ".join(map(str, ranks[:8]))
            raise ScenarioError(
                f"{given}: expected some of the {len(ranks)} ranks that are simulated with run.ranks = 'alike',"
                f" such as {shown}"
            )
        return Keeping(kept, self._steps)

    def of(self, spans: Sequence[Span]) -> Sequence[Span]:
        """Return the spans to keep; all spans of one step must come in one call."""
        if self._keeps_all:
            return spans
        self._note_operations(spans)
        ranks, steps = self._ranks, self._steps
        kept = [
            span
            for span in spans
            if span.kind == _STEP or ((ranks is None or span.rank in ranks) and (steps is None or span.step in steps))
        ]
        self._left_out += len(spans) - len(kept)
        return kept

    @property
    def as_thinned(self) -> Thinned | None:
        """The filter's effect, for readers of the recording; None if nothing is filtered."""
        if self._keeps_all:
            return None
        used, works = sorted(self._used.items()), list(self._works)
        names = [frozenset(operation for operation, _ in work) for work in works]
        phases = tuple(step for (_, before), (step, now) in pairwise(used) if names[now[0]] != names[before[0]])
        everybody = max((ranks for _, (_, ranks) in used), default=0)
        complete = [(step, work) for step, (work, ranks) in used if ranks == everybody]
        steady = steady_steps(works, [work for _, work in complete])
        turns = [
            step for (step, _), now, before in zip(complete, steady, [False, *steady], strict=False) if now != before
        ]
        return Thinned(
            ranks=None if self._ranks is None else tuple(sorted(self._ranks)),
            steps=None if self._steps is None else tuple(sorted(self._steps)),
            left_out=self._left_out,
            phases=phases,
            steady=tuple(turns),
        )

    def _note_operations(self, spans: Sequence[Span]) -> None:
        calls: dict[int, Counter[tuple[tuple[str, str, str], int]]] = {}
        ranks: Counter[int] = Counter()
        for span in spans:
            if span.step < 0:
                continue
            if span.kind == _STEP:
                ranks[span.step] += span.rank_count
            else:
                calls.setdefault(span.step, Counter())[(span.kind, span.label, span.stream), span.rank] += 1
        for step, ended in ranks.items():
            most: dict[tuple[str, str, str], int] = {}
            for (operation, _), count in calls.get(step, {}).items():
                most[operation] = max(count, most.get(operation, 0))
            work = self._works.setdefault(frozenset(most.items()), len(self._works))
            self._used.setdefault(step, (work, ended))

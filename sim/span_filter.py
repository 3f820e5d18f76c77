"""Filters the spans of a large prediction by chosen ranks and steps."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from scenarios.seam.trace import Span, Thinned

_STEP = "step"
_WORDS = "numbers and ranges such as '0,8,16-23', 'every:64', 'all' or 'none'"


def chosen(words: str, count: int) -> frozenset[int] | None:
    """The numbers below `count` that a choice names; None for all of them.

    Raises:
        ValueError: what was expected instead, as a phrase.
    """
    if words in ("all", "none"):
        return None if words == "all" else frozenset()
    if found := re.fullmatch(r"every:([0-9]{1,9})", words):
        if not int(found[1]):
            raise ValueError("'every:' and at least 1")
        return frozenset(range(0, count, int(found[1])))
    numbers: set[int] = set()
    for part in words.split(","):
        bounds = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if bounds is None:
            raise ValueError(_WORDS)
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if not first <= last < count:
            raise ValueError(f"numbers from 0 to {count - 1}, ranges upwards")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


class Keeping:
    """Passes on the spans of the chosen ranks in the chosen steps, and every step's own; counts the others.

    With a choice of steps, what is outside of steps is left out, too. None chooses all.
    """

    def __init__(self, ranks: frozenset[int] | None = None, steps: frozenset[int] | None = None) -> None:
        self._ranks, self._steps = ranks, steps
        self._keeps_all = ranks is None and steps is None
        self._left_out = 0
        self._sets: dict[frozenset[tuple[str, str, str]], int] = {}
        self._used: dict[int, int] = {}  # step -> which of the sets in `_sets`

    @property
    def has_ranks(self) -> bool:
        """Whether any rank is chosen."""
        return self._ranks is None or bool(self._ranks)

    def among(self, ranks: Collection[int]) -> Keeping:
        """The same choice where there are these ranks only; what was counted is not carried over."""
        return self if self._ranks is None else Keeping(self._ranks.intersection(ranks), self._steps)

    def of(self, spans: Sequence[Span]) -> Sequence[Span]:
        """The spans that are kept; those of one step come together."""
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
    def thinned(self) -> Thinned | None:
        """What a reader must know of what is left out; None if nothing was to be."""
        if self._keeps_all:
            return None
        used = sorted(self._used.items())
        phases = tuple(step for (_, before), (step, now) in pairwise(used) if now != before)
        return Thinned(
            ranks=None if self._ranks is None else tuple(sorted(self._ranks)),
            steps=None if self._steps is None else tuple(sorted(self._steps)),
            left_out=self._left_out,
            phases=phases,
        )

    def _note_operations(self, spans: Sequence[Span]) -> None:
        operations: dict[int, set[tuple[str, str, str]]] = {}
        for span in spans:
            if span.step >= 0:
                used = operations.setdefault(span.step, set())
                if span.kind != _STEP:
                    used.add((span.kind, span.label, span.stream))
        for step, used in operations.items():
            self._used.setdefault(step, self._sets.setdefault(frozenset(used), len(self._sets)))

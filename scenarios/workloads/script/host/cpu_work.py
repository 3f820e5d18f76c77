"""Totals and descriptions of what rank 0's host computed on the CPU next to its GPU during steps; loads no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scenarios.config.host_costs import Eager
from scenarios.config.units import format_ns
from scenarios.seam.host_work import HostWork

# Kinds of work on the CPU, as ranks report them and the first screen shows them.
OPERATORS, MEASURED, LOADING = "operators on CPU tensors", "other work", "data loading in the script's process"
COPIES, BESIDE = "copies of pageable memory", "operators on CPU tensors in other threads"
# Work that takes less time per step is not reported: Python itself takes as long for some operators.
_LEAST_NS = 100_000


@dataclass(slots=True)
class _LoadedBatches:
    """The batches that one line of the script took from workers during steps."""

    workers: int = 0
    count: int = 0
    takes_ns: int = 0
    waits_ns: int = 0


@dataclass(slots=True)
class CpuWork:
    """Totals of CPU work by kind and by line, in ns of the profile's host."""

    eager: Eager
    _ns: dict[str, Counter[str]] = field(default_factory=dict)
    _measured: set[str] = field(default_factory=set)
    _batches: dict[str, _LoadedBatches] = field(default_factory=dict)

    def clear(self) -> None:
        """Reset all totals to zero."""
        self._ns, self._measured, self._batches = {}, set(), {}

    def note(self, told: Sequence[tuple[str, str, Sequence[int]]]) -> None:
        """Add a step's work: (kind, line, counts of `HostWork`) each."""
        for what, place, counts in told:
            work = HostWork(*counts)
            self._ns.setdefault(what, Counter())[place] += self.eager.takes_ns(work)
            if work.turns:
                self._measured.add(what)

    def note_batch(self, place: str, workers: int, takes_ns: int, waits_ns: int) -> None:
        """Add a batch that a data loader's worker loaded in `takes_ns` and for which the host waited `waits_ns`."""
        found = self._batches.setdefault(place, _LoadedBatches())
        found.workers = workers
        found.count += 1
        found.takes_ns += takes_ns
        found.waits_ns += waits_ns

    @property
    def total_ns(self) -> int:
        """The CPU time of all steps, in ns."""
        return sum(counts.total() for counts in self._ns.values())

    def words(self, steps: int, *, beside: bool) -> Iterator[str]:
        """Yield sentences about the mean work per step: predicted, or (`beside`) in other threads and not predicted.

        The work for which the host takes longest comes first.
        """
        found = list[tuple[float, str]]()
        for what, by_place in self._ns.items():
            took_ns = by_place.total() / max(steps, 1)
            how = ", measured here" if what in self._measured else ""
            if (what == BESIDE) == beside and took_ns >= _LEAST_NS:
                found.append((took_ns, f"{format_ns(took_ns)} per step of {what}{_where(by_place)}{how}"))
        for place, batches in () if beside else self._batches.items():
            workers = f"{batches.workers} worker{'s' if batches.workers > 1 else ''}"
            waits_ns = batches.waits_ns / max(steps, 1)
            hidden = f", for which a step waits {format_ns(waits_ns)}" if waits_ns >= 1 else ", hidden"
            batch = format_ns(batches.takes_ns / batches.count)
            words = f"data loading of {batch} per batch in {workers} ({place}), measured here{hidden}"
            found.append((waits_ns, words))
        yield from (words for _, words in sorted(found, key=lambda one: -one[0]))


def _where(by_place: Counter[str]) -> str:
    """Return the line with the most time, in parentheses; "" if it is unknown."""
    place, most_ns = by_place.most_common(1)[0]
    if not place:
        return ""
    return f" ({place})" if most_ns == by_place.total() else f" (most in {place})"

"""Notes for the user: which classes of ranks there are, and when running one rank per class would have been faster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from scenarios.config.scenario import Scenario
from scenarios.progress_line import print_notes
from scenarios.seam.errors import ProgramError
from scenarios.workloads.recording.lines import Logs
from scenarios.workloads.script.recording.replay import difference, replays_of_two

# The hint is printed from this many ranks, and this many seconds, on.
MANY_RANKS, LONG_S = 16, 30.0
_MOST_LISTED = 8


def rank_classes(recorded_by: Sequence[int]) -> tuple[tuple[int, int, str], ...]:
    """Return (representative, number of ranks, ranks in words) of each class; nothing if every rank ran."""
    members: dict[int, list[int]] = {}
    for rank, played in enumerate(recorded_by):
        members.setdefault(played, []).append(rank)
    if len(members) == len(recorded_by):
        return ()
    return tuple((played, len(ranks), _ranges(ranks)) for played, ranks in members.items())


def _ranges(ranks: Sequence[int]) -> str:
    """Return ascending ranks in words, such as "0, 3-7, 8-64 in steps of 8"."""
    parts, first = list[str](), 0
    while first < len(ranks):
        rest = ranks[first:]
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        count = next((place for place, rank in enumerate(rest) if rank != rest[0] + place * step), len(rest))
        if count == 2 and step > 1:
            count = 1
        by = f" in steps of {step}" if step > 1 and count > 1 else ""
        parts.append(f"{rest[0]}-{rest[count - 1]}{by}" if count > 1 else str(rest[0]))
        first += count
    more = [f"{len(parts) - _MOST_LISTED:,} more ranges"] if len(parts) > _MOST_LISTED + 1 else parts[_MOST_LISTED:]
    return ", ".join([*parts[:_MOST_LISTED], *more])


def note_classes(classes: Sequence[int]) -> None:
    """Print the classes of ranks, given each rank's representative."""
    counts = Counter(classes)
    listed = [f"rank {rank} for {count:,}" for rank, count in counts.most_common(_MOST_LISTED)]
    more = [f"{len(counts) - _MOST_LISTED} more"] if len(counts) > _MOST_LISTED else []
    kinds = "1 class" if len(counts) == 1 else f"{len(counts)} classes"
    print_notes([f"{len(classes):,} ranks of {kinds}, one run of each: {', '.join([*listed, *more])}"])


class Hint:
    """A hint that fewer ranks could have run, printed if all ran and took long."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._begin_s = scenario, 0.0

    def begin(self) -> None:
        """Start the clock of the search."""
        self._begin_s = time.monotonic()

    def end(self, logs: Logs) -> None:
        """Print the hint if the scenario has an option for it and at most half of the ranks are distinct."""
        size, took_s = self._scenario.cluster.world_size, time.monotonic() - self._begin_s
        if not self._scenario.run.folded_by or size < MANY_RANKS or took_s < LONG_S:
            return
        leaders = list[int]()
        for rank in range(size):
            if not any(_is_like(logs, leader, rank, size) for leader in leaders):
                leaders.append(rank)
            if 2 * len(leaders) > size:
                return
        kinds = "1 class" if len(leaders) == 1 else f"{len(leaders)} classes"
        said = f"{size} ranks, of {kinds}, ran one by one in {took_s:.0f} s"
        print_notes([f"{said}; {self._scenario.run.folded_by} runs one rank of each class"])


def _is_like(logs: Logs, one: int, two: int, size: int) -> bool:
    try:
        return difference(*replays_of_two(logs, one, two, size)) is None
    except ProgramError:
        return False

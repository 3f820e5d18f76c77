"""Search for the classes of a script's ranks: ranks whose requests are identical, each in groups of its own.

Few ranks run. Ranks are assumed to differ only by their places along axes: their groups, their hosts, the GPUs of a
host, and the world. Run to the end of the first step are: the second rank of each axis, all ranks that send each other
messages, the ranks at which sizes in rank 0's calls change, and the world's last rank. A rank inside an axis that
differs although no call sets it apart is not found. If a rank differs from the one that represents its places, a search
along the axis finds the boundary, until all ranks that ran agree with their classes. Notes tell the user which classes
there are, and when running one rank of each would have been faster.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from scenarios.config.scenario import Scenario
from scenarios.progress_line import print_notes
from scenarios.seam.errors import ProgramError
from scenarios.workloads.recording.lines import Logs
from scenarios.workloads.script.recording.few import MOST_PROCESSES, Few
from scenarios.workloads.script.recording.replay import where_ranks_part

# The hint is printed from this many ranks, and this many seconds, on.
MANY_RANKS, LONG_S = 16, 30.0
_MOST_LISTED = 8


class Axis:
    """An axis along which ranks may differ: lines of ranks, in none of which a rank occurs twice."""

    def __init__(self, lines: Iterable[Sequence[int]]) -> None:
        self.lines = tuple(map(tuple, lines))
        self.cuts = list[int]()  # places at which a new part begins
        self._line_of = {rank: line for line in self.lines for rank in line}
        self._place_of = {rank: place for line in self.lines for place, rank in enumerate(line)}

    def part(self, rank: int) -> int:
        """Return the index of the part of the axis that a rank is in; -1 if the rank is on none of the lines."""
        return bisect_right(self.cuts, self._place_of[rank]) if rank in self._place_of else -1

    def move(self, rank: int, other: int) -> int | None:
        """Return the rank on the line of `rank` at the place of `other`; None if there is none."""
        line, place = self._line_of.get(rank, ()), self._place_of.get(other)
        return line[place] if place is not None and place < len(line) else None

    def ranks_between(self, rank: int, other: int) -> Sequence[int]:
        """Return the ranks between two ranks of one line, both included."""
        ends = sorted((self._place_of[rank], self._place_of[other]))
        return self._line_of[rank][ends[0] : ends[1] + 1]

    def cut(self, rank: int) -> None:
        """Begin a new part at a rank's place."""
        insort(self.cuts, self._place_of[rank])


class Classes:
    """A search for the classes of a world's ranks; rank 0 runs first."""

    def __init__(self, few: Few, gpus_per_host: int) -> None:
        self._few, self._world = few, range(few.world_size)
        # All run later: start them concurrently.
        few.begin_early(*{0, 1 % few.world_size, gpus_per_host % few.world_size, few.world_size - 1})
        few.play(0)
        hosts = [self._world[first : first + gpus_per_host] for first in self._world[::gpus_per_host]]
        made: list[Sequence[Sequence[int]]] = [
            [few.created_groups.groups[each] for each in family] for family in few.created_groups.families[1:]
        ]
        lines = [*made, hosts, [self._world[place::gpus_per_host] for place in range(gpus_per_host)], [self._world]]
        self._axes = _unlike(Axis(each) for each in lines)

    def find(self) -> list[int]:
        """Return the representative of each rank's class; all representatives run to the end.

        Raises:
            ProgramError: there are too many classes, or ranks of one class part after their first step.
        """
        self._compare([axis.lines[0][1] for axis in self._axes if len(axis.lines[0]) > 1])
        self._compare(self._with_messages())
        self._fill()
        self._cut_told()
        self._fill()
        self._compare([self._world[-1]])
        self._fill()
        classes = self._classes()
        if len(set(classes)) == len(self._world) > 1:
            raise ProgramError(
                f"ranks 0 and 1 do not do the same: {self._few.difference(0, 1)}; expected ranks of few classes, but no"
                f" two of {len(self._world)} do the same; run.ranks = 'each' plays all"
            )
        self._few.play(*dict.fromkeys([*classes, self._world[-1]]), to_end=True)
        self._check_last(classes)
        return classes

    def _compare(self, ranks: Sequence[int]) -> None:
        """Run these ranks, and cut axes until all ranks that ran agree with their parts."""
        self._play(*ranks)
        while (parted := self._find_differing()) is not None:
            self._cut(*parted)

    def _fill(self) -> None:
        """Run the first rank of each part of the world of which no rank has run."""
        while missing := self._missing():
            self._compare(missing)

    def _cut_told(self) -> None:
        """Cut the world's axis between ranks that rank 0's calls set apart and that do differ."""
        told = self._few.boundaries
        self._play(*told)
        for one, two in pairwise([self._world[0], *told]):
            if self._few.difference(one, two):
                next(axis for axis in self._axes if len(axis.lines[0]) == len(self._world)).cut(two)

    def _with_messages(self) -> list[int]:
        """Return the ranks of one group per family whose ranks may send each other messages, if the group is small.

        Messages within the world: return the ranks that lie as far apart as the messages' ends, and add their axis.
        """
        found, taken = list[int](), set[int]()
        for members, away in sorted(self._few.messages):
            if len(members) == len(self._world):
                axis = Axis(self._world[place::away] for place in range(away))
                self._axes = _unlike([axis, *self._axes]) if away > 1 else self._axes
                found += _if_few(axis.lines[0])
            elif (family := self._few.created_groups.family(members)) not in taken:
                taken.add(family)
                found += _if_few(members)
        return found

    def _play(self, *ranks: int) -> None:
        if len({*self._few.running, *ranks}) > MOST_PROCESSES:
            parted = next((each for each in self._few.ranks if self._few.difference(0, each)), 0)
            first = f"ranks 0 and {parted} do not do the same: {self._few.difference(0, parted)}; " if parted else ""
            raise ProgramError(
                f"{first}expected ranks of few classes, but {MOST_PROCESSES} of {len(self._world)} were played and"
                f" there may be more; of at most {MOST_PROCESSES} ranks run.ranks = 'each' plays all"
            )
        self._few.play(*ranks)

    def _key(self, rank: int) -> tuple[int, ...]:
        return tuple(axis.part(rank) for axis in self._axes)

    def _first(self) -> dict[tuple[int, ...], int]:
        """Map each part of the world to the first of its ranks that ran."""
        found: dict[tuple[int, ...], int] = {}
        for rank in self._few.ranks:
            found.setdefault(self._key(rank), rank)
        return found

    def _missing(self) -> list[int]:
        """Return the first rank of each part of the world of which no rank has run."""
        there, found = self._first(), dict[tuple[int, ...], int]()
        for rank in self._world:
            if (key := self._key(rank)) not in there:
                found.setdefault(key, rank)
        return list(found.values())

    def _find_differing(self) -> tuple[int, int] | None:
        """Return two ranks that ran and differ although they are in one part; None if there are none."""
        first = self._first()
        for rank in self._few.ranks:
            one = first[self._key(rank)]
            if one != rank and self._few.difference(one, rank):
                return one, rank
        return None

    def _cut(self, one: int, two: int) -> None:
        """Cut the first axis that tells two differing ranks apart; the world's axis, the last one, always can."""
        for axis in self._axes:
            moved = axis.move(one, two)
            if moved in (None, one):
                continue
            self._play(moved)
            if self._few.difference(one, moved):
                axis.cut(self._boundary(axis.ranks_between(one, moved)))
                return
        raise AssertionError("all ranks are on one axis")

    def _boundary(self, line: Sequence[int]) -> int:
        """Return the first rank of a line that differs from its predecessor.

        The search starts at the line's end, where uneven shards leave small parts, with growing strides, then bisects.
        """
        first, low, high, back = line[0], 0, len(line) - 1, 1
        while high - low > 1:
            # `back` is 0 once a rank like the first is found: the boundary is bracketed then, and halves do.
            place = max(high - back, low + 1) if back else (low + high) // 2
            self._play(line[place])
            if self._few.difference(first, line[place]):
                high, back = place, 2 * back
            else:
                low, back = place, 0
        return line[high]

    def _classes(self) -> list[int]:
        """Return the representative of each rank's class."""
        leaders = dict[int, int]()
        for rank in self._first().values():
            like = (each for each in dict.fromkeys(leaders.values()) if self._few.difference(each, rank) is None)
            # Parts may be alike although an axis was cut between them: one of them runs for all.
            leaders[rank] = next(like, rank)
        first = self._first()
        return [leaders[first[self._key(rank)]] for rank in self._world]

    def _check_last(self, classes: Sequence[int]) -> None:
        """Compare the whole run of the last rank with that of its representative.

        Raises:
            ProgramError: both differ after their first step.
        """
        last, leader = self._world[-1], classes[-1]
        if leader == last:
            return
        if found := self._few.difference(leader, last, to_end=True):
            raise ProgramError(
                f"ranks {leader} and {last} do not do the same: {found}; expected ranks that do the same in their first"
                " step to go on so, as one of each class is played"
            )


def _if_few(ranks: Sequence[int]) -> Sequence[int]:
    return ranks if len(ranks) <= MOST_PROCESSES // 2 else ()


def _unlike(axes: Iterable[Axis]) -> list[Axis]:
    """Return the axes (groups of ranks along one dimension of the world), without duplicates and groups of one rank."""
    return list({axis.lines: axis for axis in axes if max(map(len, axis.lines)) > 1}.values())


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
            if all(where_ranks_part(logs, leader, rank, size) is not None for leader in leaders):
                leaders.append(rank)
            if 2 * len(leaders) > size:
                return
        kinds = "1 class" if len(leaders) == 1 else f"{len(leaders)} classes"
        said = f"{size} ranks, of {kinds}, ran one by one in {took_s:.0f} s"
        print_notes([f"{said}; {self._scenario.run.folded_by} runs one rank of each class"])

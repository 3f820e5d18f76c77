"""A rank's recorded requests, replayed: by the rank itself, or by another one of its class in groups of its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

from scenarios.seam.errors import ProgramError
from scenarios.seam.host_work import HostWork
from scenarios.seam.traits import MESSAGES
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.event import Counts, RankEvent, Request
from scenarios.workloads.recording.events.notes import ScriptEnd, StepEnd
from scenarios.workloads.recording.events.waits import Query, Sleep
from scenarios.workloads.recording.events.work import ComputeOnCpu, Turn
from scenarios.workloads.recording.lines import Logs, parse_lines
from scenarios.workloads.recording.recorded import Recorded

# Events that may occur within a polling loop.
_IN_LOOPS = (Query, HostWork, ComputeOnCpu, Sleep)


class Replays:
    """A parsed recording, from which each rank's replay is made."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self._lines = recorded, parse_lines(recorded)

    def of(self, rank: int) -> Replay:
        """Return the replay of a rank."""
        sequence = self.recorded.sequences[self.recorded.ranks[rank]]
        return Replay(
            self._lines, sequence, GroupsByFamily(rank, self.recorded.recorded_by[rank], len(self.recorded.ranks))
        )


class Families:
    """All groups that ranks have created, by family: disjoint groups of one size, as a device mesh makes them.

    Attributes:
        groups: the ranks of each group, by its number.
        families: the numbers of the groups in each family.
    """

    def __init__(self, world_size: int) -> None:
        self.groups: list[Sequence[int]] = [range(world_size)]
        self.families = [[0]]
        self._members = [set[int](range(world_size))]  # of each family
        self._of = [0]  # each group's family

    def add(self, ranks: Sequence[int]) -> None:
        """Add a group to the first family that it fits, or to a new one."""
        family = next((each for each in range(len(self.families)) if self._takes(each, ranks)), len(self.families))
        if family == len(self.families):
            self.families.append([])
            self._members.append(set())
        self.families[family].append(len(self.groups))
        self._members[family].update(ranks)
        self._of.append(family)
        self.groups.append(ranks)

    def _takes(self, family: int, ranks: Sequence[int]) -> bool:
        first = self.groups[self.families[family][0]]
        return len(first) == len(ranks) and self._members[family].isdisjoint(ranks)

    def family(self, ranks: Sequence[int]) -> int:
        """Return the index of the family of the group of these ranks; -1 if there is no such group."""
        found = (of for of, each in zip(self._of, self.groups, strict=True) if tuple(each) == tuple(ranks))
        return next(found, -1)

    def like(self, number: int, rank: int) -> int | None:
        """Return the number of the group in the same family that contains `rank`; None if there is none."""
        if rank in self.groups[number]:
            return number
        return next((each for each in self.families[self._of[number]] if rank in self.groups[each]), None)


class GroupsByFamily:
    """A map from a recorded rank's groups to another rank's: per family, the group that contains the other rank."""

    def __init__(self, rank: int, recorded: int, world_size: int) -> None:
        self._rank, self._recorded = rank, recorded
        self._made = Families(world_size)
        self._found: dict[int, int] = {}

    def add(self, ranks: Sequence[int]) -> None:
        """Register a new group of these ranks."""
        if self._rank != self._recorded:
            self._made.add(ranks)

    def group(self, number: int) -> int:
        """Return the number of this rank's own group in place of the recorded rank's group (of the same `new_group`s).

        Raises:
            ProgramError: no group of the family contains this rank.
        """
        if self._rank == self._recorded:
            return number
        if number not in self._found:
            found = self._made.like(number, self._rank)
            if found is None:
                raise ProgramError(f"rank {self._rank}: {_NO_GROUP}")
            self._found[number] = found
        return self._found[number]

    def options(self, number: int, verb: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return a call's options for this rank: a root keeps its place in the group, a message's peer its distance."""
        own = self.group(number)
        roots = {key: options[key] for key in ("src", "dst") if key in options}
        if self._rank == self._recorded or not roots or (own == number and verb not in MESSAGES):
            return options
        ranks, others = self._made.groups[number], self._made.groups[own]
        moved = others.index(self._rank) - ranks.index(self._recorded) if verb in MESSAGES else 0
        return {**options, **{key: others[(ranks.index(of) + moved) % len(others)] for key, of in roots.items()}}


_NO_GROUP = (
    "it was not recorded, and is in no group like those of the rank that was: expected groups that parts of the world"
    " make alike"
)


class Replay:
    """A replay of a rank's recorded requests. Answers have no effect, except those to polls."""

    def __init__(self, events: Sequence[RankEvent | HostWork], indices: Sequence[int], members: GroupsByFamily) -> None:
        self._events, self._indices, self._members = events, indices, members
        self._place = 0  # where the next index stands
        self._counts = Counts(event=-1)

    def next(self) -> Turn:
        """Return the next turn; past the end of the recording, the script's end."""
        spent = list[Any]()
        while self._place < len(self._indices):
            event = self._events[self._indices[self._place]]
            self._place += 1
            found = event if isinstance(event, HostWork) else event.replay(self._counts, self._members)
            if isinstance(found, Request):
                return Turn(spent, found)
            spent.append(found)
        return Turn((), ScriptEnd())

    def answer(self, value: Any = None) -> None:
        """Skip the rest of a polling loop once a poll finds its work over; `value` is the answer to the last request.

        A wait after the loop identifies it. Replays on faster hardware need fewer polls than were recorded.
        """
        looked = self._events[self._indices[self._place - 1]]
        if not isinstance(looked, Query) or value is False:
            return
        for place in range(self._place, len(self._indices)):
            event = self._events[self._indices[place]]
            if not isinstance(event, _IN_LOOPS):
                self._place = place if event == looked.wait else self._place
                return

    def close(self) -> None:
        """Do nothing: a replay holds nothing open."""


def script_calls_of(recorded: Recorded, rank: int, step: int) -> dict[int, list[IssueCall]]:
    """Return the calls of a step of a script's rank, by the number of their stream and in order."""
    found, steps, replay = defaultdict[int, list[IssueCall]](list), -1, Replays(recorded).of(rank)
    while not isinstance(request := replay.next().request, ScriptEnd):
        steps += isinstance(request, StepEnd)  # the first one ends the set-up
        if isinstance(request, IssueCall) and steps == step:
            found[request.stream].append(request)
    return found


def where_ranks_part(logs: Logs, one: int, two: int, world_size: int, *, steps: int | None = None) -> str | None:
    """Return a phrase about where two ranks part, in all or the first `steps`; None if their requests are identical."""
    both = (Replay(*logs.events(each), GroupsByFamily(two, each, world_size)) for each in (one, two))
    try:
        return difference(*both, steps=steps)
    except ProgramError as error:
        return str(error)


def difference(expected: Replay, found: Replay, *, steps: int | None = None) -> str | None:
    """Return a phrase about where two ranks part, in all or the first `steps`; None if their requests are identical.

    The first rank's requests are `expected`, translated to the second rank's groups.

    Raises:
        ProgramError: the second rank is in no group that corresponds to one of the first rank.
    """
    left = -1 if steps is None else steps
    for number in count(1):
        (one, has_one_polled), (two, has_two_polled) = _next(expected), _next(found)
        if _comparable(one.request) != _comparable(two.request):
            return f"{one.request.in_words()} is not {two.request.in_words()} (request {number})"
        if one.spent != two.spent:
            return f"they compute differently before {one.request.in_words()} (request {number})"
        if has_one_polled != has_two_polled:
            return f"polls keep only one of them waiting before {one.request.in_words()} (request {number})"
        left -= isinstance(one.request, StepEnd)
        if isinstance(one.request, ScriptEnd) or left == 0:
            return None
    raise AssertionError("requests end")


def _next(replay: Replay) -> tuple[Turn, bool]:
    """Return the next turn whose request is not free, and whether a polling loop ended in a wait before it.

    A wait that ends a polling loop is no request of its own here; host work is left out.
    """
    spent, has_polled = list[Any](), False
    looks, last = Counter[Request | None](), None  # polls by target, and the previous request if it was a poll
    while True:
        before, request = replay.next()
        spent += before
        if last is not None and looks[last] > 1 and request == last.wait:
            has_polled = True
        elif not request.is_free:
            break
        last = request if isinstance(request, Query) else None
        looks.update([last])
    launched = [each for each in spent if not isinstance(each, HostWork)]
    return Turn(launched, request), has_polled


def _comparable(request: Request) -> object:
    return type(request) if request.is_own else request

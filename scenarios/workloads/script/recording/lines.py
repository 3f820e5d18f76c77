"""Events of a script's ranks as lines of a recording, each stored once, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from scenarios.seam.errors import ProgramError
from scenarios.seam.host_work import HostWork
from scenarios.seam.traits import MESSAGES
from scenarios.workloads.script.events.calls import IssueCall
from scenarios.workloads.script.events.event import Counts, Request, ScriptEvent
from scenarios.workloads.script.events.notes import CompiledStep, ScriptEnd
from scenarios.workloads.script.events.table import HOST, of_line
from scenarios.workloads.script.events.waits import Query, Sleep
from scenarios.workloads.script.events.work import ComputeOnCpu, LaunchKernel, Turn
from scenarios.workloads.script.recording.recorded import Recorded
from scenarios.workloads.script.requests import Packed

# Events that may occur within a polling loop.
_IN_LOOPS = (Query, HostWork, ComputeOnCpu, Sleep)


class Lines:
    """A table of all ranks' lines, each stored once."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self._kernels: dict[ScriptEvent, int] = {}  # a cache, as lines of kernels take long to write

    def number(self, event: ScriptEvent | HostWork) -> int:
        """Return the index of an event's line, adding the line if it is new."""
        if isinstance(event, HostWork):
            return self._of_text(json.dumps([HOST, event]))
        found = self._kernels.get(event) if isinstance(event, LaunchKernel) else None
        if found is None:
            found = self._of_text(json.dumps([event.kind, *event.line()], default=_shape))
            if isinstance(event, LaunchKernel):
                self._kernels[event] = found
        return found

    def _of_text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))


class RankLog:
    """A log of one rank's events, as indices of lines."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self.indices = lines, list[int]()
        self.compiled = list[int]()  # of one step, as torch.compile would have issued it
        self._before: list[int] | None = None  # the compiled work before the next request
        self._counts = Counts()
        self.is_whole = False

    def note(self, turn: Turn) -> None:
        """Append a turn: the rank's work and the request after it."""
        if isinstance(turn.request, CompiledStep):
            # The next request brings the events again, uncompiled: count them on a copy.
            self._before = list(self._numbers(turn.request.spent, replace(self._counts)))
            return
        self.indices += self._numbers([*turn.spent, turn.request], self._counts)
        if self._before is not None:
            self.compiled += [*self._before, self.indices[-1]]
            self._before = None

    def add(self, event: ScriptEvent | HostWork) -> None:
        """Append an event whose numbers are those of its line."""
        self.indices.append(self._lines.number(event))

    def _numbers(self, events: Sequence[ScriptEvent | HostWork], counts: Counts) -> Iterator[int]:
        for each in events:
            yield self._lines.number(each if isinstance(each, HostWork) else each.noted(counts))


class Logs:
    """The logs of all ranks, which share one table of lines."""

    def __init__(self) -> None:
        self._lines, self._of = Lines(), dict[int, RankLog]()
        self._parsed = list[ScriptEvent | HostWork]()

    def begin(self, rank: int) -> RankLog:
        """Start and return a rank's log."""
        made = self._of[rank] = RankLog(self._lines)
        return made

    def replays(self, rank: int, other: int, world_size: int) -> tuple[Replay, Replay]:
        """Return two replays: `rank`'s events translated to `other`'s groups, and `other`'s own events."""
        self._parsed += [parse_line(json.loads(text)) for text in islice(self._lines.texts, len(self._parsed), None)]
        both = ((self._of[each].indices, GroupsByFamily(other, each, world_size)) for each in (rank, other))
        one, two = (Replay(self._parsed, indices, members) for indices, members in both)
        return one, two

    def are_whole(self, world_size: int) -> bool:
        """Return whether all ranks have a log that reaches the end."""
        return len(self._of) == world_size and all(log.is_whole for log in self._of.values())

    def recorded(self, recorded_by: Sequence[int], **head: Any) -> Recorded:
        """Return the recording of these logs.

        Args:
            recorded_by: for each rank, the rank whose log stands for it.
            head: the fields of `Recorded` that describe the script and its hardware.
        """
        sequences: dict[tuple[tuple[int, ...], ...], int] = {}
        both = {rank: (tuple(self._of[rank].indices), tuple(self._of[rank].compiled)) for rank in set(recorded_by)}
        numbers = {rank: sequences.setdefault(each, len(sequences)) for rank, each in both.items()}
        return Recorded(
            **head,
            lines=[json.loads(text) for text in self._lines.texts],
            sequences=[list(each) for each, _ in sequences],
            compiled=[list(each) for _, each in sequences],
            ranks=[numbers[rank] for rank in recorded_by],
            recorded_by=list(recorded_by),
        )


class Replays:
    """A parsed recording, from which each rank's replay is made."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self._lines = recorded, [parse_line(line) for line in recorded.lines]

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
        """Return the number of this rank's group that corresponds to the recorded group.

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

    def __init__(
        self, events: Sequence[ScriptEvent | HostWork], indices: Sequence[int], members: GroupsByFamily
    ) -> None:
        self._events, self._indices, self._members = events, indices, members
        self._place = 0  # where the next index stands
        self._counts = Counts(event=-1)

    def next(self) -> Turn:
        """Return the next turn; past the end of the recording, the script's end."""
        spent = list[Any]()
        while self._place < len(self._indices):
            event = self._events[self._indices[self._place]]
            self._place += 1
            found = event if isinstance(event, HostWork) else event.replayed(self._counts, self._members)
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


def parse_line(line: list[Any]) -> ScriptEvent | HostWork:
    """Return the event of a line, with tensors in the form in which a script's rank sends them."""
    event = of_line(line)
    if isinstance(event, IssueCall):
        inputs, outputs = ([_packed(each) for each in side] for side in (event.inputs, event.outputs))
        return replace(event, inputs=inputs, outputs=outputs)
    return event


def _shape(packed: Any) -> Any:
    if not isinstance(packed, Packed):  # a number of numpy
        return packed.item()
    return [list(packed.shape), str(packed.dtype).removeprefix("torch."), packed.values is not None]


def _packed(shape: Any) -> Packed:
    """Return a tensor of a recorded shape; recorded values become b"", as a script on a GPU waits only for values."""
    return Packed(tuple(shape[0]), getattr(torch, shape[1]), b"" if shape[2] else None)

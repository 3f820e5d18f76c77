"""Requests of a script's rank as lines of a recording, and back.

Numbers of calls and events are left out, or are how many came since, so that what steps and ranks do alike is alike:

    ["cpu", ns, label]                          computed so long on a CPU, and what for
    ["host", counts]                            what the host of a GPU did, as HostWork has it
    ["kernel", stream, {...}, label]            a kernel's figures, those that are not as usual, and what it is for
    ["event", stream], ["after", stream, back]  recorded; waited for, the last one with 0
    ["gradient", stream, [replica, place]]      is there
    ["issue", verb, group, label, stream, inputs, outputs, options, of_reducer, library]
                                                a collective; tensors as [shape, dtype, is known]
    ["wait", back, stream]                      for the collective issued last with 0
    ["synchronize_event", back]                 the host waits for the event recorded last with 0
    ["synchronize_call", back]                  the host waits for the collective issued last with 0
    ["query", kind, back]                       the host looks at an event, a stream (by its number) or a call
    ["met"]                                     ranks met in a store
    [kind, ...]                                 any other request and its argument
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

import torch

from scenarios.seam.errors import ProgramError
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import from_json, to_json
from scenarios.workloads.script.recording.recorded import Recorded
from scenarios.workloads.script.requests import Collective, Computed, Launched, Packed, Request, Spent

# Waits that end loops of looks, by what is looked at.
AFTER_POLLS = {"event": "synchronize_event", "stream": "synchronize", "call": "synchronize_call"}
# What lies between two looks of a loop.
_IN_LOOPS = frozenset({"query", "host", "cpu", "sleep"})
# Calls between two ranks.
MESSAGES = frozenset({"send", "recv"})
_USUAL = {field.name: field.default for field in fields(Kernel)}


class Lines:
    """Lines of all ranks, each once."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self._kernels: dict[Launched, int] = {}

    def number(self, line: Sequence[Any]) -> int:
        """The line's index."""
        return self.texts.setdefault(json.dumps(line), len(self.texts))

    def of_kernel(self, launched: Launched, kernel: Kernel) -> int:
        """The index of a kernel's line."""
        found = self._kernels.get(launched)
        if found is None:
            line = ["kernel", launched.stream, _figures(kernel), launched.label]
            found = self._kernels[launched] = self.number(line)
        return found


class RankLog:
    """One rank's requests as indices of lines."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self.indices = lines, list[int]()
        self.compiled = list[int]()  # of the step that was noted as torch.compile would have it
        self._before: list[int] | None = None  # of the next request, so
        self._events = self._calls = 0
        self.is_whole = False

    def note(self, request: Request) -> None:
        """A request, after those before it."""
        spent, kind, argument = request
        if kind == "compiled":
            events = self._events  # which come again with the next request
            self._before, self._events = list(self._spent(argument)), events
            return
        self.indices += self._spent(spent)
        self.indices.append(self._lines.number(self._line(kind, argument)))
        if self._before is not None:
            self.compiled += [*self._before, self.indices[-1]]
            self._before = None

    def _spent(self, spent: Spent) -> Iterator[int]:
        for each in spent:
            if isinstance(each, Computed):
                yield self._lines.number(["cpu", *each])
            elif isinstance(each, HostWork):
                yield self._lines.number(["host", each])
            elif each.gradient is not None:
                yield self._lines.number(["gradient", each.stream, each.gradient])
            elif each.kernel is not None:
                yield self._lines.of_kernel(each, each.kernel)
            elif each.record is not None:
                self._events = each.record
                yield self._lines.number(["event", each.stream])
            else:
                assert each.wait is not None, "a stream is given one of three"
                yield self._lines.number(["after", each.stream, self._events - each.wait])

    def _line(self, kind: str, argument: Any) -> list[Any]:
        match kind:
            case "issue":
                call: Collective = argument
                self._calls = call.number
                tensors = [[_shape(each) for each in side] for side in (call.inputs, call.outputs)]
                head = [kind, call.verb, call.group, call.label, call.stream]
                return [*head, *tensors, call.options, call.of_reducer, call.library]
            case "wait":
                number, stream = argument
                return [kind, self._calls - number, stream]
            case "synchronize_event" | "synchronize_call":
                return [kind, (self._events if kind == "synchronize_event" else self._calls) - argument]
            case "query":
                polled, number = argument
                return [kind, polled, {"event": self._events, "call": self._calls}.get(polled, 0) - number]
            case "store":  # of which a replay asks nothing
                return ["met"]
            case _:
                return [kind] if argument is None else [kind, argument]


class Logs:
    """Of all ranks."""

    def __init__(self) -> None:
        self._lines, self._of = Lines(), dict[int, RankLog]()
        self._parsed = list[Sequence[Any]]()

    def begin(self, rank: int) -> RankLog:
        """A new one for that rank."""
        made = self._of[rank] = RankLog(self._lines)
        return made

    def replays(self, rank: int, other: int, world_size: int) -> tuple[Replay, Replay]:
        """Return what `other` would ask if `rank` were recorded for it, and what it asked itself."""
        self._parsed += [_parsed(json.loads(text)) for text in islice(self._lines.texts, len(self._parsed), None)]
        both = ((self._of[each].indices, Members(other, each, world_size)) for each in (rank, other))
        one, two = (Replay(self._parsed, indices, members) for indices, members in both)
        return one, two

    def are_whole(self, world_size: int) -> bool:
        """Whether each rank's has come to its end."""
        return len(self._of) == world_size and all(log.is_whole for log in self._of.values())

    def recorded(self, recorded_by: Sequence[int], **head: Any) -> Recorded:
        """What a file has of them; `head` are the fields of `Recorded` that say what was recorded."""
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
    """A recording, to be played."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self._lines = recorded, [_parsed(line) for line in recorded.lines]

    def of(self, rank: int) -> Replay:
        """That rank's."""
        sequence = self.recorded.sequences[self.recorded.ranks[rank]]
        return Replay(self._lines, sequence, Members(rank, self.recorded.recorded_by[rank], len(self.recorded.ranks)))


class Families:
    """All groups that ranks have made, by family: those of one size that share no rank, as a mesh makes them.

    Attributes:
        groups: the ranks of each group, by its number.
        families: numbers of the groups of each family.
    """

    def __init__(self, world_size: int) -> None:
        self.groups: list[Sequence[int]] = [range(world_size)]
        self.families = [[0]]
        self._members = [set[int](range(world_size))]  # of each family
        self._of = [0]  # each group's family

    def add(self, ranks: Sequence[int]) -> None:
        """Add a further group."""
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
        """Return the family of the group of these ranks; -1 if there is none."""
        found = (of for of, each in zip(self._of, self.groups, strict=True) if tuple(each) == tuple(ranks))
        return next(found, -1)

    def like(self, number: int, rank: int) -> int | None:
        """Return which group of a group's family a rank is in; None if it is in none of them."""
        if rank in self.groups[number]:
            return number
        return next((each for each in self.families[self._of[number]] if rank in self.groups[each]), None)


class Members:
    """The groups of a rank for which another was recorded: of each family the one that it is in itself."""

    def __init__(self, rank: int, recorded: int, world_size: int) -> None:
        self._rank, self._recorded = rank, recorded
        self._made = Families(world_size)
        self._found: dict[int, int] = {}

    def add(self, ranks: Sequence[int]) -> None:
        """Note a further group."""
        if self._rank != self._recorded:
            self._made.add(ranks)

    def group(self, number: int) -> int:
        """Return this rank's group in place of that of the recorded one."""
        if self._rank == self._recorded:
            return number
        if number not in self._found:
            found = self._made.like(number, self._rank)
            if found is None:
                raise ProgramError(f"rank {self._rank}: {_NO_GROUP}")
            self._found[number] = found
        return self._found[number]

    def options(self, number: int, verb: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a call on the recorded rank's group: in this one's a root has the same place, and whom
        a message goes to, or comes from, is as far away.
        """
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
    """A rank that asks what a recording says; but for looks, answers count for nothing, as values do not."""

    def __init__(self, lines: Sequence[Sequence[Any]], indices: Sequence[int], members: Members) -> None:
        self._lines, self._indices, self._members = lines, indices, members
        self._place = 0  # of the next index
        self._events, self._calls = -1, 0

    def next(self) -> Request:
        """As a script's rank; past the end of the recording it ends."""
        spent = list[Computed | Launched | HostWork]()
        while self._place < len(self._indices):
            line = self._lines[self._indices[self._place]]
            self._place += 1
            match line[0]:
                case "cpu":
                    spent.append(Computed(*line[1:]))
                case "host":
                    spent.append(line[1])
                case "kernel" | "gradient":
                    spent.append(line[2])
                case "event":
                    self._events += 1
                    spent.append(Launched(line[1], record=self._events))
                case "after":
                    spent.append(Launched(line[1], wait=self._events - line[2]))
                case kind:
                    return spent, kind, self._argument(kind, line)
        return (), "end", None

    def answer(self, value: Any = None) -> None:
        """End a loop of looks, known by the wait behind it, at the first look that finds over what it waits for, which
        is sooner than where it was recorded on faster hardware.
        """
        looked = self._lines[self._indices[self._place - 1]]
        if looked[0] != "query" or value is False:
            return
        for place in range(self._place, len(self._indices)):
            line = self._lines[self._indices[place]]
            if line[0] not in _IN_LOOPS:
                ends_it = line[0] == AFTER_POLLS[looked[1]] and [abs(each) for each in line[1:]] == [abs(looked[2])]
                self._place = place if ends_it else self._place
                return

    def close(self) -> None:
        """Nothing is open."""

    def _argument(self, kind: str, line: Sequence[Any]) -> Any:
        if kind == "new_group":
            self._members.add(line[1])
        match kind:
            case "issue":
                self._calls += 1
                _, verb, group, label, stream, inputs, outputs, options, of_reducer, library = line
                return Collective(
                    number=self._calls,
                    verb=verb,
                    group=self._members.group(group),
                    label=label,
                    stream=stream,
                    inputs=inputs,
                    outputs=outputs,
                    options=self._members.options(group, verb, options),
                    of_reducer=of_reducer,
                    library=library,
                )
            case "wait":
                return self._calls - line[1], line[2]
            case "synchronize_event" | "synchronize_call":
                return (self._events if kind == "synchronize_event" else self._calls) - line[1]
            case "query":
                return line[1], {"event": self._events, "call": self._calls}.get(line[1], 0) - line[2]
            case "replica":
                number, group, *rest = line[1]
                return [number, self._members.group(group), *rest]
            case _:
                return line[1] if len(line) > 1 else None


def _parsed(line: list[Any]) -> list[Any]:
    match line[0]:
        case "host":
            return [line[0], HostWork(*line[1])]
        case "kernel":
            return [line[0], line[1], Launched(line[1], _kernel(line[2]), line[3])]
        case "gradient":
            return [line[0], line[1], Launched(line[1], gradient=tuple(line[2]))]
        case "issue":
            return [*line[:5], *([_packed(each) for each in side] for side in line[5:7]), *line[7:]]
        case _:
            return line


def _figures(kernel: Kernel) -> dict[str, Any]:
    found = {name: getattr(kernel, name) for name in _USUAL}
    found["parts"] = tuple(_figures(each) for each in kernel.parts)
    found["operations"] = to_json(kernel.operations) if kernel.operations else ()
    return {name: value for name, value in found.items() if value != _USUAL[name]}


def _kernel(figures: dict[str, Any]) -> Kernel:
    parts = tuple(_kernel(each) for each in figures.get("parts", ()))
    return Kernel(**{**figures, "parts": parts, "operations": from_json(figures.get("operations", []))})


def _shape(packed: Packed) -> list[Any]:
    return [list(packed.shape), str(packed.dtype).removeprefix("torch."), packed.values is not None]


def _packed(shape: list[Any]) -> Packed:
    """Where there were values, some others: a script on a GPU waits for those alone."""
    return Packed(tuple(shape[0]), getattr(torch, shape[1]), b"" if shape[2] else None)

"""Events of ranks as lines of a recording, each stored once, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from scenarios.seam.host_work import HostWork
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.event import Counts, RankEvent
from scenarios.workloads.recording.events.notes import CompiledStep
from scenarios.workloads.recording.events.table import HOST, of_line
from scenarios.workloads.recording.events.work import LaunchKernel, Turn
from scenarios.workloads.recording.packed import Packed
from scenarios.workloads.recording.recorded import Recorded


class RankLog:
    """A log of one rank's events, as indices of lines."""

    def __init__(self, number: Callable[[RankEvent | HostWork], int]) -> None:
        """Begin a log; `number` returns the index of an event's line."""
        self._number, self.indices = number, list[int]()
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

    def add(self, event: RankEvent | HostWork) -> None:
        """Append an event whose numbers are those of its line."""
        self.indices.append(self._number(event))

    def _numbers(self, events: Sequence[RankEvent | HostWork], counts: Counts) -> Iterator[int]:
        for each in events:
            yield self._number(each if isinstance(each, HostWork) else each.as_line(counts))


class Logs:
    """The logs of all ranks, and the table of their lines, each stored once."""

    def __init__(self) -> None:
        self._texts, self._of = dict[str, int](), dict[int, RankLog]()
        self._kernels = dict[RankEvent, int]()  # a cache, as lines of kernels take long to write
        self._parsed = list[RankEvent | HostWork]()

    def _number(self, event: RankEvent | HostWork) -> int:
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
        return self._texts.setdefault(text, len(self._texts))

    def begin(self, rank: int) -> RankLog:
        """Start and return a rank's log."""
        made = self._of[rank] = RankLog(self._number)
        return made

    def events(self, rank: int) -> tuple[Sequence[RankEvent | HostWork], Sequence[int]]:
        """Return the events of all lines so far, and a rank's log as indices of them."""
        self._parsed += [parse_line(json.loads(text)) for text in islice(self._texts, len(self._parsed), None)]
        return self._parsed, self._of[rank].indices

    def are_whole(self, world_size: int) -> bool:
        """Return whether all ranks have a log that reaches the end."""
        return len(self._of) == world_size and all(log.is_whole for log in self._of.values())

    def make_recording(self, recorded_by: Sequence[int], **head: Any) -> Recorded:
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
            lines=[json.loads(text) for text in self._texts],
            sequences=[list(each) for each, _ in sequences],
            compiled=[list(each) for _, each in sequences],
            ranks=[numbers[rank] for rank in recorded_by],
            recorded_by=list(recorded_by),
        )


def parse_lines(recorded: Recorded) -> list[RankEvent | HostWork]:
    """Return the events of a recording's lines.

    Raises:
        ValueError: a line has no event's values; the message is a phrase with its place.
    """
    found = list[RankEvent | HostWork]()
    for line in recorded.lines:
        try:
            found.append(parse_line(line))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"lines[{len(found)}], '{line[0]}': expected values as they were written: {error}"
            ) from None
    return found


def parse_line(line: list[Any]) -> RankEvent | HostWork:
    """Return the event of a line, with tensors in the form in which a script's rank sends them."""
    event = of_line(line)
    if isinstance(event, IssueCall):
        inputs, outputs = ([_pack(each) for each in side] for side in (event.inputs, event.outputs))
        return replace(event, inputs=inputs, outputs=outputs)
    return event


def _shape(packed: Any) -> Any:
    if not isinstance(packed, Packed):  # a number of numpy
        return packed.item()
    return [list(packed.shape), str(packed.dtype).removeprefix("torch."), packed.values is not None]


def _pack(shape: Any) -> Packed:
    """Return a tensor of a recorded shape; recorded values become b"", as a script on a GPU waits only for values."""
    dtype = getattr(torch, shape[1], None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype {shape[1]!r} is none of torch")
    return Packed(tuple(shape[0]), dtype, b"" if shape[2] else None)

"""What a rank computes between two requests: on a CPU, or given to streams of its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import from_json, to_json
from scenarios.workloads.script.events.event import Counts, OwnGroups, Request, ScriptEvent
from scenarios.workloads.script.events.forms import is_kernel, is_pair, is_text, is_whole

_USUAL = {field.name: field.default for field in fields(Kernel)}


@dataclass(frozen=True, slots=True)
class ComputeOnCpu(ScriptEvent):
    """So many ns of CPU time, and what they were for."""

    kind: ClassVar[str] = "cpu"
    form = is_whole, is_text

    cpu_ns: int
    label: str


@dataclass(frozen=True, slots=True)
class LaunchKernel(ScriptEvent):
    """A kernel for a stream, and what it is for. In a line it has those of its figures that are not as usual."""

    kind: ClassVar[str] = "kernel"
    form = is_whole, is_kernel, is_text

    stream: int
    kernel: Kernel
    label: str = ""

    def line(self) -> list[Any]:
        return [self.stream, _figures(self.kernel), self.label]

    @classmethod
    def of_line(cls, *values: Any) -> LaunchKernel:
        stream, figures, label = values
        return cls(stream, _kernel(figures), label)


@dataclass(frozen=True, slots=True)
class RecordEvent(ScriptEvent):
    """An event of torch.cuda, by its number, that a stream records. Its line has no number."""

    kind: ClassVar[str] = "event"
    form = (is_whole,)

    stream: int
    number: int = -1

    def line(self) -> list[Any]:
        return [self.stream]

    def noted(self, counts: Counts) -> ScriptEvent:
        counts.event = self.number
        return self

    def replayed(self, counts: Counts, own: OwnGroups) -> ScriptEvent:
        counts.event += 1
        return replace(self, number=counts.event)


@dataclass(frozen=True, slots=True)
class WaitEvent(ScriptEvent):
    """Such an event for which a stream waits; in a line the one recorded last has number 0."""

    kind: ClassVar[str] = "after"
    form = is_whole, is_whole
    since = "event"

    stream: int
    number: int


@dataclass(frozen=True, slots=True)
class GradientReady(ScriptEvent):
    """What had come so far on a stream when a gradient was there, by its replica's number and its own."""

    kind: ClassVar[str] = "gradient"
    form = is_whole, is_pair

    stream: int
    gradient: tuple[int, int]

    @classmethod
    def of_line(cls, *values: Any) -> GradientReady:
        stream, gradient = values
        return cls(stream, tuple(gradient))


# What streams of a GPU are given.
OnStream: TypeAlias = LaunchKernel | RecordEvent | WaitEvent
# What is given to a GPU with what its host did, each ahead of what it launched then.
Launched: TypeAlias = OnStream | GradientReady | HostWork
# What was computed since the last request.
Spent: TypeAlias = Sequence[ComputeOnCpu | Launched]


class Turn(NamedTuple):
    """What a rank has computed since its last request, and what it asks now."""

    spent: Spent
    request: Request


def part_of(each: ComputeOnCpu | Launched) -> str | GradientReady | None:
    """Return what goes together: what a CPU computed for the same, what a GPU was given; each gradient is by itself."""
    if isinstance(each, ComputeOnCpu):
        return each.label
    return each if isinstance(each, GradientReady) else None


def _figures(kernel: Kernel) -> dict[str, Any]:
    found = {name: getattr(kernel, name) for name in _USUAL}
    found["parts"] = tuple(_figures(each) for each in kernel.parts)
    found["operations"] = to_json(kernel.operations) if kernel.operations else ()
    return {name: value for name, value in found.items() if value != _USUAL[name]}


def _kernel(figures: dict[str, Any]) -> Kernel:
    parts = tuple(_kernel(each) for each in figures.get("parts", ()))
    return Kernel(**{**figures, "parts": parts, "operations": from_json(figures.get("operations", []))})

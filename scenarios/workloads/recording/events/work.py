"""Work of a rank between two requests: computation on a CPU, or kernels and events for its GPU's streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self, TypeAlias

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.as_json import from_json, to_json
from scenarios.workloads.recording.events.event import Counts, OwnGroups, RankEvent, Request, event
from scenarios.workloads.recording.events.forms import is_kernel, is_pair, is_role, is_text, is_whole

_USUAL = {field.name: field.default for field in fields(Kernel)}


class Label(NamedTuple):
    """The name of a part of a script: a module, an optimizer or a line; and its role, one of `scenarios.seam.roles`."""

    text: str
    role: str = ""


@event("cpu", is_whole, is_text, is_role)
class ComputeOnCpu(RankEvent):
    """CPU time in ns, with the text and the role of its label."""

    cpu_ns: int
    label: str
    role: str = ""


@event("kernel", is_whole, is_kernel, is_text, is_role)
class LaunchKernel(RankEvent):
    """A kernel on a stream, with the text and the role of its label. A line holds only figures that are no defaults."""

    stream: int
    kernel: Kernel
    label: str = ""
    role: str = ""

    def line(self) -> list[Any]:
        return [self.stream, _figures(self.kernel), self.label, self.role]

    @classmethod
    def of_line(cls, *values: Any) -> Self:
        stream, figures, *label = values
        return cls(stream, _kernel(figures), *label)


@event("event", is_whole)
class RecordEvent(RankEvent):
    """A CUDA event recorded on a stream; `number` counts a rank's events, and a recording's line omits it."""

    stream: int
    number: int = -1

    def line(self) -> list[Any]:
        return [self.stream]

    def as_line(self, counts: Counts) -> RankEvent:
        counts.event = self.number
        return self

    def replay(self, counts: Counts, own: OwnGroups) -> RankEvent:
        counts.event += 1
        return replace(self, number=counts.event)


@event("after", is_whole, is_whole)
class WaitEvent(RankEvent):
    """A stream's wait for a CUDA event. Lines count back from the last recorded event."""

    since = "event"

    stream: int
    number: int


@event("gradient", is_whole, is_pair)
class GradientReady(RankEvent):
    """A marker on a stream: the gradient (replica's number, gradient's number) is ready after the work before it."""

    stream: int
    gradient: tuple[int, int]

    @classmethod
    def of_line(cls, *values: Any) -> GradientReady:
        stream, gradient = values
        return cls(stream, tuple(gradient))


# Items that a GPU's stream executes.
OnStream: TypeAlias = LaunchKernel | RecordEvent | WaitEvent
# Items for a GPU, with its host's work: `HostWork` precedes the launches that it led to.
Launched: TypeAlias = OnStream | GradientReady | HostWork
# A rank's work since its last request.
Spent: TypeAlias = Sequence[ComputeOnCpu | Launched]


class Turn(NamedTuple):
    """A rank's work since its last request, and its next request."""

    spent: Spent
    request: Request


def part_of(each: ComputeOnCpu | Launched) -> Label | GradientReady | None:
    """Return a key that groups consecutive work: CPU work's label, None for GPU work; each gradient has its own key."""
    if isinstance(each, ComputeOnCpu):
        return Label(each.label, each.role)
    return each if isinstance(each, GradientReady) else None


def _figures(kernel: Kernel) -> dict[str, Any]:
    found = {name: getattr(kernel, name) for name in _USUAL}
    found["parts"] = tuple(_figures(each) for each in kernel.parts)
    found["operations"] = to_json(kernel.operations) if kernel.operations else ()
    return {name: value for name, value in found.items() if value != _USUAL[name]}


def _kernel(figures: dict[str, Any]) -> Kernel:
    further: dict[str, Any] = {"host": HostWork(*figures["host"])} if "host" in figures else {}
    further["parts"] = tuple(_kernel(each) for each in figures.get("parts", ()))
    further["layers"] = tuple((path, tuple(map(tuple, runs))) for path, runs in figures.get("layers", ()))
    return Kernel(**{**figures, **further, "operations": from_json(figures.get("operations", []))})

"""What a rank tells of itself: its steps and its end, its memory, its losses, its plan, what its host did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from scenarios.workloads.script.events.event import Request
from scenarios.workloads.script.events.forms import is_anything, is_batch, is_cpu_work, is_metric, is_whole
from scenarios.workloads.script.events.work import Spent


@dataclass(frozen=True, slots=True)
class StepEnd(Request):
    """The end of a step, or of setting up."""

    kind: ClassVar[str] = "step"
    words = "a step's end"


@dataclass(frozen=True, slots=True)
class ScriptEnd(Request):
    """The end of the script: how it ended and what was seen, as `outcome.Outcome` has it."""

    kind: ClassVar[str] = "end"
    form = (is_anything,)
    words = "the script's end"
    is_own = True

    seen: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ScriptFailure(Request):
    """A sentence that ends the run, and the script's frames below it."""

    sentence: str


@dataclass(frozen=True, slots=True)
class RecordMetric(Request):
    """A number of a step; on real ranks still a tensor."""

    kind: ClassVar[str] = "record"
    form = (is_metric,)
    is_listed = True
    words = "a loss"
    is_awaited = False
    is_own = True

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class FoundPlan(Request):
    """Where tables are, as `torchrec_plan.plan_found` has it."""

    kind: ClassVar[str] = "plan"
    form = (is_anything,)
    is_free = True

    found: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryPeak(Request):
    """The most bytes that the GPU's tensors took so far."""

    kind: ClassVar[str] = "memory"
    form = (is_whole,)
    is_awaited = False
    is_free = True

    peak_bytes: int


@dataclass(frozen=True, slots=True)
class ReservedPeak(MemoryPeak):
    """The most bytes that the allocator reserved of the GPU's memory so far."""

    kind: ClassVar[str] = "reserved"


@dataclass(frozen=True, slots=True)
class NoteLeftOut(Request):
    """What the present step did that is not predicted, in words."""

    kind: ClassVar[str] = "left_out"
    form = (is_anything,)
    is_free = True

    found: Sequence[str]


@dataclass(frozen=True, slots=True)
class NoteCpuWork(Request):
    """What the present step computed on the CPU beside a GPU: [what, line, counts of `HostWork`] of each."""

    kind: ClassVar[str] = "on_cpu"
    form = (is_cpu_work,)
    is_awaited = False
    is_free = True

    computed: Sequence[Any]


@dataclass(frozen=True, slots=True)
class LoadedBatch(Request):
    """A batch of a data loader's workers: the loader's number, how many workers, how many batches each is ahead, turns
    as `HostWork` has them, the line that takes it.
    """

    kind: ClassVar[str] = "loaded"
    form = (is_batch,)
    is_listed = True
    is_awaited = False
    is_free = True

    loader: int
    workers: int
    prefetch: int
    turns: int
    place: str


@dataclass(frozen=True, slots=True)
class CompiledStep(Request):
    """What torch.compile would have had given since the last request, for the recording alone."""

    is_awaited = False

    spent: Spent

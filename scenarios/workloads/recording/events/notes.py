"""Reports of a rank: ends of steps and of the script, memory peaks, losses, the sharding plan, and work of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.workloads.recording.events.event import Request, event
from scenarios.workloads.recording.events.forms import is_anything, is_batch, is_cpu_work, is_metric, is_whole
from scenarios.workloads.recording.events.work import Spent


@event("step")
class StepEnd(Request):
    """The end of a step, or of the set-up before the first step."""

    words = "a step's end"


@event("end", is_anything)
class ScriptEnd(Request):
    """The end of the script, with how it ended and what was observed, in the fields of `outcome.Outcome`."""

    words = "the script's end"
    is_own = True

    seen: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ScriptFailure(Request):
    """A failure that ends the run: one sentence, followed by the script's stack frames."""

    sentence: str


@event("record", is_metric)
class RecordMetric(Request):
    """A metric of a step, such as a loss; on real ranks the value is still a tensor."""

    is_listed = True
    words = "a loss"
    is_awaited = False
    is_own = True

    name: str
    value: Any


@event("plan", is_anything)
class FoundPlan(Request):
    """The placement of embedding tables, as `torchrec_plan.plan_found` returns it."""

    is_free = True

    found: Mapping[str, Any]


@event("memory", is_whole)
class MemoryPeak(Request):
    """The peak size of the GPU's tensors so far, in bytes."""

    is_awaited = False
    is_free = True

    peak_bytes: int


@event("reserved", is_whole)
class ReservedPeak(MemoryPeak):
    """The peak of the GPU memory that the caching allocator has reserved so far, in bytes."""


@event("left_out", is_anything)
class NoteLeftOut(Request):
    """Descriptions of the work in the current step that is not predicted."""

    is_free = True

    found: Sequence[str]


@event("on_cpu", is_cpu_work)
class NoteCpuWork(Request):
    """The current step's computations on the CPU next to a GPU: [what, script's line, counts of `HostWork`] each."""

    is_awaited = False
    is_free = True

    computed: Sequence[Any]


@event("loaded", is_batch)
class LoadedBatch(Request):
    """A batch from a data loader's workers.

    Attributes:
        loader: the number of the data loader.
        workers: how many worker processes the loader has.
        prefetch: how many batches each worker loads ahead.
        turns: the interpreter's work for the batch, as `HostWork` counts turns.
        place: the script's line that takes the batch.
    """

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
    """The events that torch.compile would have issued since the last request; only a recording reads them."""

    is_awaited = False

    spent: Spent

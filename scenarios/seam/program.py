"""Defines `Program`: a workload as both worlds run it; a user's own program is a subclass."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from scenarios.seam.trace import MemoryRow, PlanRow

if TYPE_CHECKING:
    from scenarios.config.host_classes import HostClasses
    from scenarios.workloads.effort import Effort

# The step of which a program with compiled modules repeats the work: in the first one hosts are not yet ahead.
COMPILED_STEP = 1


class Program(ABC):
    """A workload: one object per process, called once per rank; each call runs as a coroutine.

    Attributes:
        plan: the planner's placement of the tables; empty for a workload without tables.
        own_plan: our planner's placement where another planner made `plan`; empty: not applicable or not possible.
        plan_notes: assumptions behind the expected times of both plans, or why there are none, in sentences.
        step_samples: samples of a rank in a step, as a script's lookups show it; 0: unknown.
        memory: each rank's GPU memory by part, checked against its capacity before the run; empty: not checked.
        host_classes: host classes, of which one representative each is simulated; None: every rank is simulated.
        effort: time and memory for simulating one step of every rank; None: unknown.
        left_out: parts of the steps that are not predicted, in words; known when all ranks have ended.
        on_cpu: host computation in steps concurrent with the GPUs, in words; known when all ranks have ended.
        rank_classes: the ranks that were simulated for others, as in `RunInfo`.
        does: called with the current phase and words for the user, or "" for the simulation's progress; set by the
            caller that runs the program.

    All others are known before anything runs, host classes after `prepare`. Ranks in verbs (`src`, `dst`, `ranks`) are
    global ranks.

    Class attributes say what scenario files may configure:

    Attributes:
        Options: the program's own section, a dataclass or a pydantic model; None: any keys.
        section: the section's name; `scenario.options` holds its values.
        reads: further keys it reads: "buckets", "compression", and "run.batch_size", which is then required.
        needs_values: whether the program branches on values of tensors.
        finds_classes: whether `prepare` finds the host classes, if any; the effort is known only then.
    """

    Options: ClassVar[type | None] = None
    section: ClassVar[str] = "options"
    reads: ClassVar[tuple[str, ...]] = ()
    needs_values: ClassVar[bool] = False
    finds_classes: ClassVar[bool] = False

    plan: tuple[PlanRow, ...] = ()
    own_plan: tuple[PlanRow, ...] = ()
    plan_notes: tuple[str, ...] = ()
    step_samples: int = 0
    memory: tuple[MemoryRow, ...] = ()
    host_classes: HostClasses | None = None
    effort: Effort | None = None
    left_out: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()
    rank_classes: tuple[tuple[int, int, str], ...] = ()
    does: Callable[[str, str], None] = staticmethod(lambda phase, words: None)

    @abstractmethod
    async def __call__(self, rank: Rank) -> None:
        """Run every step on one rank."""

    def prepare(self) -> None:  # noqa: B027  (few programs have anything to find out)
        """Do slow preparation that is not done yet; called before each run, and earlier where its results are needed.

        Raises:
            ProgramError: the program cannot be simulated.
        """

    def judge(self) -> None:  # noqa: B027  (few programs have anything to say)
        """Check, after all ranks have ended, that what they did is a prediction.

        Raises:
            ProgramError: it is not: no rank has made a step, for example.
        """

    def standing(self) -> str:
        """Return a phrase about the cause, such as ranks that have ended, which a deadlock's message adds; or ""."""
        return ""

    def compiled(self) -> Program | None:
        """Return the program with its modules run as torch.compile would run them, each of its steps being step
        `COMPILED_STEP` of this program; None if unknown, or where `launching.fusion` does it.
        """
        return None

    def kept(self) -> dict[str, bytes]:
        """Return further files for the folder of a finished simulated run, by name."""
        return {}


def begin(program: Program, rank: Rank) -> Coroutine[Any, Any, None]:
    """Return the program's coroutine on one rank.

    Raises:
        ProgramError: the call returns no coroutine, or the coroutine (when run) returns another that nobody awaited.
    """
    kind = type(program).__qualname__
    made: Any = program(rank)
    if not inspect.iscoroutine(made):
        what = "an async generator" if inspect.isasyncgen(made) else _article(made)
        raise ProgramError(
            f"rank {rank.rank}: {kind}.__call__ returned {what}, expected 'async def __call__(self, rank)'"
        )

    async def __call__() -> None:  # noqa: N807 - the name that sentences give
        result: Any = await made
        if inspect.iscoroutine(result) or inspect.iscoroutinefunction(result):
            if inspect.iscoroutine(result):
                result.close()
            raise ProgramError(
                f"rank {rank.rank}: {kind}.__call__ returned {_article(result)} that nobody awaited, expected"
                f" 'await' before {getattr(result, '__qualname__', 'it')}"
            )

    return __call__()


def _article(value: object) -> str:
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"

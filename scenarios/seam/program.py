"""A workload as both worlds run it; a user's own program is a subclass of `Program`."""

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


class Program(ABC):
    """A workload: one object per process, called once per rank; each call runs as a coroutine.

    Attributes:
        plan: where the planner put the tables; empty for a workload without tables.
        own_plan: where ours would put tables that another planner has put elsewhere; empty: nobody did, or it cannot.
        plan_notes: on what the two plans' expected times rest, and why there are none, in sentences.
        memory: what each rank holds on its GPU, checked against the GPU's memory before the run; empty: not checked.
        host_classes: the host classes of which one representative each is simulated; None: every rank is.
        effort: what simulating a step of every rank takes of the machine; None: not known.
        left_out: what its steps did of which nothing is predicted, in words; known when all ranks are at their end.
        on_cpu: what hosts computed in steps beside their GPUs, in words; likewise.
        rank_classes: the ranks that were played for others, as `RunInfo` has them.
        does: called with the phase in which the program is, and the words that a user sees, or "" to see how far the
            simulation is; whoever plays the program sets it.

    All are known before anything runs, host classes after `prepare`. Ranks in verbs (`src`, `dst`, `ranks`) are global
    ranks.

    What a scenario file may say for it, by class:

    Attributes:
        Options: the program's own section, a dataclass or a pydantic model; None: any keys.
        section: the section's name; `scenario.options` holds its values.
        reads: what it reads besides: "buckets", "compression", and "run.batch_size", which then must be there.
        needs_values: whether it goes other ways without the values of tensors.
        finds_classes: whether it finds its host classes, if it has any, when it prepares, and then states its effort.
    """

    Options: ClassVar[type | None] = None
    section: ClassVar[str] = "options"
    reads: ClassVar[tuple[str, ...]] = ()
    needs_values: ClassVar[bool] = False
    finds_classes: ClassVar[bool] = False

    plan: tuple[PlanRow, ...] = ()
    own_plan: tuple[PlanRow, ...] = ()
    plan_notes: tuple[str, ...] = ()
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
        """Find out what takes long to find out and is not known yet; called ahead of each play, and earlier where its
        answers are wanted.

        Raises:
            ProgramError: it cannot be simulated.
        """

    def judge(self) -> None:  # noqa: B027  (few programs have anything to say)
        """Check that what the ranks did, all of which have come to their end, is a prediction.

        Raises:
            ProgramError: it is none: no rank has made a step, say.
        """

    def standing(self) -> str:
        """Return what a deadlock's sentence adds of ranks that are at their end; "" if there is nothing to add."""
        return ""

    def compiled(self) -> Program | None:
        """Return the program with its modules as torch.compile would run them, to be played; None if it is not known,
        or where `launching.fusion` makes it.
        """
        return None

    def kept(self) -> dict[str, bytes]:
        """Further files for the folder of a simulated run that has ended, by name."""
        return {}


def begin(program: Program, rank: Rank) -> Coroutine[Any, Any, None]:
    """The program's coroutine on one rank.

    Raises:
        ProgramError: calling it gives none, or (when it is played) gives a coroutine that nobody awaited.
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

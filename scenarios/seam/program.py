"""A workload as both worlds run it; a user's own program is a subclass of `Program`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from scenarios.seam.rank import Rank
from scenarios.seam.trace import MemoryRow, PlanRow

if TYPE_CHECKING:
    from scenarios.config.host_classes import HostClasses
    from scenarios.workloads.effort import Effort


class Program(ABC):
    """A workload: one object per process, called once per rank; each call runs as a coroutine.

    Attributes:
        plan: where the planner put the tables; empty for a workload without tables.
        memory: what each rank holds on its GPU, checked against the GPU's memory before the run; empty: not checked.
        host_classes: the host classes of which one representative each is simulated; None: every rank is.
        effort: what simulating a step takes of the machine; None: not known.

    All are known before anything runs. Ranks in verbs (`src`, `dst`, `ranks`) are global ranks.
    """

    plan: tuple[PlanRow, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    host_classes: HostClasses | None = None
    effort: Effort | None = None

    @abstractmethod
    async def __call__(self, rank: Rank) -> None:
        """Run every step on one rank."""

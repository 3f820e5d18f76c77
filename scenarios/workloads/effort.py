"""What a simulation asks of the machine that it runs on, known before it begins: right to a factor of about two."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.config.scenario import Recommender, Scenario
from scenarios.seam.errors import ScenarioError

# Fitted on simulations of 8 to 1,024 ranks (DLRMs of 26 and 800 tables, an exchange) on a virtual machine of 2 cores.
_BASE_S, _BASE_BYTES = 3.0, 500 << 20
_ENTRY_S, _ENTRY_BYTES = 1.2e-7, 48
_PAIR_S, _PAIR_BYTES = 5e-6, 600
_OPERATION_S = 1.5e-4
# Kept of an operation until the run has been reported: its span, its share of the links' loads. 1.5 to 2.9 kB measured
# as the growth of peak memory from 10 to 400 steps of `twrw_2x2` and from 500 to 20,000 of an all-reduce of 2 ranks.
_KEPT_BYTES = 2000

# Where a file leaves open how to simulate, each rank is simulated up to here; the same on every machine.
MOST_S, MOST_BYTES = 60.0, 4 << 30
MEMORY_LEFT = 0.9  # of the memory that is free, what a simulation may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Of one step, all simulated ranks together.

    Attributes:
        entries: bags, and ids that are drawn because somebody reads them.
        pairs: pairs of ranks that exchange something, in every exchange.
        operations: computations and collectives, rank by rank.
        held_bytes: tensors with values, which stay from step to step.
        loaded_bytes: batches that data loaders hold ahead of the step.
    """

    entries: float = 0.0
    pairs: float = 0.0
    operations: float = 0.0
    held_bytes: float = 0.0
    loaded_bytes: float = 0.0

    def seconds(self, steps: int) -> float:
        """How long so many steps take to simulate."""
        return _BASE_S + steps * (self.entries * _ENTRY_S + self.pairs * _PAIR_S + self.operations * _OPERATION_S)

    @property
    def step_bytes(self) -> float:
        """The simulation's memory in a step, in bytes."""
        drawn = self.entries * _ENTRY_BYTES + self.loaded_bytes
        return _BASE_BYTES + drawn + self.pairs * _PAIR_BYTES + self.held_bytes

    def size_bytes(self, steps: int) -> float:
        """Return the simulation's memory at its fullest, in bytes, with what is kept of each step until the end."""
        return self.step_bytes + steps * self.operations * _KEPT_BYTES

    def most_steps(self, size_bytes: float) -> int:
        """Return how many steps fit into so many bytes of memory."""
        return int((size_bytes - self.step_bytes) / (self.operations * _KEPT_BYTES)) if self.operations else 0

    def of_share(self, share: float) -> Effort:
        """Return what simulating this share of the ranks takes, whose batches are not drawn."""
        return replace(
            self, entries=0.0, pairs=self.pairs * share**2, operations=self.operations * share, loaded_bytes=0.0
        )

    def is_large(self, steps: int) -> bool:
        """Return whether representatives of the hosts' classes should be simulated instead, if they may."""
        return self.seconds(steps) > MOST_S or self.step_bytes > MOST_BYTES

    def may_be_long(self, steps: int) -> bool:
        """Return whether it is to be said before it begins; estimates are right to a factor of two."""
        return 2 * self.seconds(steps) > MOST_S or self.size_bytes(steps) > MOST_BYTES

    def text(self, steps: int) -> str:
        """Such as "about 2 min and 5 GiB"."""
        return f"about {_long(self.seconds(steps))} and {_size(self.size_bytes(steps))}"


def check_memory(scenario: Scenario, effort: Effort, free_bytes: float | None = None) -> None:
    """Refuse a simulation that does not fit into the free memory of this machine.

    Args:
        scenario: whose steps are simulated.
        effort: what simulating one of its steps takes.
        free_bytes: the free memory; None: this machine's.

    Raises:
        ScenarioError: it does not fit; the sentence names the key that takes most.
    """
    free_bytes = free_memory_bytes() if free_bytes is None else free_bytes
    most_bytes = MEMORY_LEFT * free_bytes
    if effort.size_bytes(scenario.steps) <= most_bytes:
        return
    key, instead = f"run.ranks = '{scenario.ranks}'", scenario.folded_by
    more = f", and {instead} simulates one host of each class in place of all" if instead else ""
    if effort.step_bytes <= most_bytes:
        key, more = f"run.steps = {scenario.steps}", f"; {effort.most_steps(most_bytes):,} steps fit"
    elif isinstance(workload := scenario.workload, Recommender) and (
        effort.step_bytes - effort.loaded_bytes <= most_bytes
    ):
        key = f"data.prefetch = {workload.data.prefetch}"
        more = f", {_size(effort.loaded_bytes)} of it batches that are loaded ahead"
    raise ScenarioError(
        f"{scenario.path}: {key}: expected a simulation that fits into this machine's {_size(free_bytes)} of free"
        f" memory; this one takes about {_size(effort.size_bytes(scenario.steps))}{more}"
    )


def free_memory_bytes() -> float:
    """What a process may still take: of the machine, and of its control group; infinite where neither says so."""
    free = math.inf
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    with suppress(OSError, ValueError):  # "max" where there is no limit
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, most - used)
    return free


def _long(seconds: float) -> str:
    for unit, each in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * each:
            return f"{seconds / each:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(size_bytes: float) -> str:
    """To two digits: it is no better known."""
    return f"{float(f'{size_bytes / 2**30:.2g}'):,g} GiB"

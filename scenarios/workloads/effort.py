"""Estimates the time and memory of a simulation before it begins, to within a factor of about two."""

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
# Bytes kept per operation until the run's report: its span, its share of the links' loads. Measured 1.5 to 2.9 kB, as
# the growth of peak memory from 10 to 400 steps of `twrw_2x2` and from 500 to 20,000 of an all-reduce of 2 ranks.
_KEPT_BYTES = 2000

# Unless a file says how, every rank is simulated up to these limits; independent of the machine.
MOST_S, MOST_BYTES = 60.0, 4 << 30
MEMORY_LEFT = 0.9  # share of the free memory that a simulation may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The effort of simulating one step of all simulated ranks.

    Attributes:
        entries: bags and ids that are drawn because their values are used.
        pairs: pairs of ranks that exchange data, summed over exchanges.
        operations: computations and collectives, summed over ranks.
        held_bytes: tensors with values that persist from step to step.
        loaded_bytes: batches that data loaders hold ahead of the step.
    """

    entries: float = 0.0
    pairs: float = 0.0
    operations: float = 0.0
    held_bytes: float = 0.0
    loaded_bytes: float = 0.0

    def seconds(self, steps: int) -> float:
        """Return the simulation time of `steps` steps."""
        return _BASE_S + steps * (self.entries * _ENTRY_S + self.pairs * _PAIR_S + self.operations * _OPERATION_S)

    @property
    def step_bytes(self) -> float:
        """Memory of the simulation in a step, in bytes."""
        drawn = self.entries * _ENTRY_BYTES + self.loaded_bytes
        return _BASE_BYTES + drawn + self.pairs * _PAIR_BYTES + self.held_bytes

    def size_bytes(self, steps: int) -> float:
        """Return the simulation's peak memory in bytes, with the data kept from each step until the end."""
        return self.step_bytes + steps * self.operations * _KEPT_BYTES

    def most_steps(self, size_bytes: float) -> int:
        """Return the number of steps that fit into `size_bytes` of memory."""
        return int((size_bytes - self.step_bytes) / (self.operations * _KEPT_BYTES)) if self.operations else 0

    def of_share(self, share: float) -> Effort:
        """Return the effort for this share of the ranks, without drawing batches."""
        return replace(
            self, entries=0.0, pairs=self.pairs * share**2, operations=self.operations * share, loaded_bytes=0.0
        )

    def is_large(self, steps: int) -> bool:
        """Return whether one representative per host class should be simulated instead, if possible."""
        return self.seconds(steps) > MOST_S or self.step_bytes > MOST_BYTES

    def may_be_long(self, steps: int) -> bool:
        """Return whether to announce the effort before it begins; estimates are right within a factor of two."""
        return 2 * self.seconds(steps) > MOST_S or self.size_bytes(steps) > MOST_BYTES

    def text(self, steps: int) -> str:
        """Return the effort in words, such as "about 2 min and 5 GiB"."""
        return f"about {_long(self.seconds(steps))} and {_size(self.size_bytes(steps))}"


def check_memory(scenario: Scenario, effort: Effort, free_bytes: float | None = None) -> None:
    """Refuse a simulation that does not fit into the free memory of this machine.

    Args:
        scenario: the scenario to simulate.
        effort: of simulating one step.
        free_bytes: the free memory; None: this machine's.

    Raises:
        ScenarioError: it does not fit; names the key responsible for most of the memory.
    """
    free_bytes = free_memory_bytes() if free_bytes is None else free_bytes
    most_bytes = MEMORY_LEFT * free_bytes
    if effort.size_bytes(scenario.run.steps) <= most_bytes:
        return
    key, instead = f"run.ranks = '{scenario.run.ranks}'", scenario.run.folded_by
    more = f", and {instead} simulates one host of each class in place of all" if instead else ""
    if effort.step_bytes <= most_bytes:
        key, more = f"run.steps = {scenario.run.steps}", f"; {effort.most_steps(most_bytes):,} steps fit"
    elif isinstance(workload := scenario.workload, Recommender) and (
        effort.step_bytes - effort.loaded_bytes <= most_bytes
    ):
        key = f"data.prefetch = {workload.data.prefetch}"
        more = f", {_size(effort.loaded_bytes)} of it batches that are loaded ahead"
    raise ScenarioError(
        f"{scenario.path}: {key}: expected a simulation that fits into this machine's {_size(free_bytes)} of free"
        f" memory; this one takes about {_size(effort.size_bytes(scenario.run.steps))}{more}"
    )


def free_memory_bytes() -> float:
    """Return the memory still free on the machine and in its control group; infinite if neither reports it."""
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
    """Return the size in words, to two digits, as it is an estimate."""
    return f"{float(f'{size_bytes / 2**30:.2g}'):,g} GiB"

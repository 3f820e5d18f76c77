"""The model of a job of days, in seconds: the input of `play` and the closed forms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# What a job's time is spent on besides steps that count; reports say what each means.
LOSSES = (
    *("input", "evaluation", "checkpoint", "shrunk", "slow part"),
    *("rework", "detection", "replacement", "restart", "restore"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """Steps on some number of hosts.

    Attributes:
        step_s: seconds of one step, without waiting for input.
        share: samples of a step relative to those of a step on all hosts.
        writing_s: seconds of one step while a checkpoint is written beside it.
    """

    step_s: float
    share: float = 1.0
    writing_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "writing_s", max(self.writing_s, self.step_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One kind of interruption.

    Attributes:
        per_s: interruptions a second of the job on all hosts.
        with_hosts: share of `per_s` that is proportional to the number of hosts; the rest is the job's own.
        detection_s: seconds until the failure is noticed.
        loses_host: whether a host must be replaced, which comes back `repair_s` later.
        planned: whether a checkpoint is written before it.
        slow_for_s: seconds for which steps take `slow_factor` times as long before it.
    """

    name: str
    per_s: float
    with_hosts: float = 1.0
    detection_s: float = 0.0
    loses_host: bool = False
    repair_s: float = 0.0
    planned: bool = False
    slow_for_s: float = 0.0
    slow_factor: float = 1.0

    def rate(self, share_of_hosts: float) -> float:
        """Return the interruptions a second where this share of the hosts runs."""
        return self.per_s * (1 - self.with_hosts + self.with_hosts * share_of_hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTimes:
    """The times of checkpoints, by a checkpoint's number since the last whole one (0: a whole checkpoint).

    Attributes:
        blocks_s: seconds for which training waits; checkpoints repeat after `len(blocks_s)`.
        background_s: seconds of writing after that, during steps; 0 for a blocking checkpoint.
        restore_s: seconds to load all checkpoints since the last whole one.
    """

    blocks_s: tuple[float, ...]
    background_s: tuple[float, ...]
    restore_s: tuple[float, ...]

    @classmethod
    def blocking(cls, write_s: float, restore_s: float) -> CheckpointTimes:
        """Return whole checkpoints that stop training while they are written."""
        return cls(blocks_s=(write_s,), background_s=(0.0,), restore_s=(restore_s,))

    def quicker(self, speed: float) -> CheckpointTimes:
        """Return checkpoints that are written and loaded `speed` times as fast."""
        parts = (self.blocks_s, self.background_s, self.restore_s)
        blocks_s, background_s, restore_s = (tuple(seconds / speed for seconds in part) for part in parts)
        return CheckpointTimes(blocks_s=blocks_s, background_s=background_s, restore_s=restore_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """A job of days, with times in seconds.

    Attributes:
        steps: steps on all hosts after which the job is done; inf: it ends at `horizon_s`.
        horizon_s: seconds after which the job ends; inf: it ends with its steps.
        by_hosts: steps by number of running hosts, at least those of `hosts`.
        interval_steps: steps between two checkpoints.
        writing: times of checkpoints.
        interruptions: kinds of interruption.
        hosts, spares: hosts that train, and hosts that wait to replace them.
        gpus_per_host: GPUs of a host.
        shrinks: whether the job continues on fewer hosts, down to the least in `by_hosts`, if there is no spare.
        input_stall: share of training time in which GPUs wait for samples.
        evaluation: time of an evaluation divided by the training time between two.
        restart_s: seconds from the scheduler to set-up process groups.
        replacement_s: seconds until a spare host has joined.
    """

    steps: float = math.inf
    horizon_s: float = math.inf
    by_hosts: Mapping[int, JobStep]
    interval_steps: int
    writing: CheckpointTimes
    interruptions: tuple[Interruption, ...] = ()
    hosts: int = 1
    spares: int = 0
    gpus_per_host: int = 1
    shrinks: bool = False
    input_stall: float = 0.0
    evaluation: float = 0.0
    restart_s: float = 0.0
    replacement_s: float = 0.0
    _full: JobStep = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_full", self.by_hosts[self.hosts])

    @property
    def step_s(self) -> float:
        """Seconds of one step on all hosts, without waiting for input."""
        return self._full.step_s

    @property
    def fed_step_s(self) -> float:
        """Seconds of training for one step on all hosts, with waiting for input."""
        return self.step_s / (1 - self.input_stall)

    @property
    def failures_per_s(self) -> float:
        """Interruptions a second of the job on all hosts, planned ones included."""
        return sum(one.per_s for one in self.interruptions)

    @property
    def least_hosts(self) -> int:
        """The least number of hosts on which the job runs."""
        return min(self.by_hosts) if self.shrinks else self.hosts

    def with_interval(self, steps: int) -> JobModel:
        """Return the job with another number of steps between two checkpoints."""
        return dataclasses.replace(self, interval_steps=steps)

    def until(self, *, steps: float = math.inf, horizon_s: float = math.inf) -> JobModel:
        """Return the job with another end."""
        return dataclasses.replace(self, steps=steps, horizon_s=horizon_s)

"""Plays one job in SimPy: training in bulk up to the next interruption, then detection, replacement and restart."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import simpy

from sim.job.cycles import Cycles
from sim.job.model import LOSSES, Interruption, JobModel

_BLOCK = 256  # random numbers drawn at once
_ROUNDED = 1e-14  # share of a time by which it is off, at most, as a sum of two
_PATIENCE, _HOPELESS = 10_000, 1e-3  # after so many interruptions a job must have had that goodput
Events = Generator[simpy.Event, None, None]


class EndlessJobError(Exception):
    """A job that nearly never saves any steps, and whose end is a number of steps."""


@dataclass(frozen=True, slots=True)
class JobPhase:
    """A stretch of a job: seconds since its start, what happens ("steps" or a name in `LOSSES`), and why."""

    begin_s: float
    end_s: float
    what: str
    hosts: int
    why: str = ""


@dataclass(slots=True)
class Played:
    """A simulated job.

    Attributes:
        seconds: its length.
        steps: steps that count, as steps on all hosts.
        lost_s: seconds by name in `LOSSES`.
        counts: interruptions by kind.
        phases: the job's phases, if they are kept.
    """

    seconds: float = 0.0
    steps: float = 0.0
    lost_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))
    counts: dict[str, int] = field(default_factory=dict)
    phases: list[JobPhase] = field(default_factory=list)


def play(
    model: JobModel, seed: int, draw: int = 0, *, keep: bool = False, at: Sequence[tuple[float, str]] | None = None
) -> Played:
    """Simulate one job.

    Args:
        model: the job.
        seed: seed of all random numbers.
        draw: number of the job among the simulated ones.
        keep: whether its phases are kept.
        at: all interruptions of the job, instead of random ones: seconds since its start, and the kind's name.

    Raises:
        ValueError: the job has no end.
        EndlessJobError: the job ends after a number of steps, and hardly ever saves any.
    """
    if math.isinf(model.steps) and math.isinf(model.horizon_s):
        raise ValueError("a job without an end: expected steps or horizon_s")
    env = simpy.Environment()
    job = _Job(model, env, np.random.default_rng((seed, draw)), keep=keep)
    if at is not None:
        job.interrupt_at(at)
    env.process(job.run())
    env.run()
    return job.played


class _Job:
    def __init__(self, model: JobModel, env: simpy.Environment, rng: np.random.Generator, *, keep: bool) -> None:
        self._model, self._env, self._rng, self._keep = model, env, rng, keep
        self.played = Played(counts=dict.fromkeys((one.name for one in model.interruptions), 0))
        self._hosts, self._spares = model.hosts, model.spares
        self._repairs: list[float] = []  # when lost hosts come back, as a heap
        self._whole_s = 0.0  # when the last of the hosts that are waited for comes back
        self._joins = False  # hosts have still to join
        self._first = 0  # the next checkpoint's number in its period
        self._has_saved = False
        self._interrupted = 0
        self._cycles: dict[int, Cycles] = {}
        self._rates: dict[int, list[float]] = {}
        self._exponentials: list[float] = []
        self._uniforms: list[float] = []
        self._given: list[tuple[float, Interruption]] | None = None  # those to come, the last one first

    def interrupt_at(self, at: Sequence[tuple[float, str]]) -> None:
        """Interrupt the job at these times by these kinds, and not at random."""
        kinds = {one.name: one for one in self._model.interruptions}
        self._given = [(seconds, kinds[name]) for seconds, name in sorted(at, reverse=True)]

    def run(self) -> Events:
        """Train and recover until all steps are done or the time is over."""
        interruption = yield from self._train()
        while interruption is not None:
            self._check_progress()
            yield from self._recover(interruption)
            interruption = None if self._is_over else (yield from self._train())
        self.played.seconds = self._env.now

    @property
    def _is_over(self) -> bool:
        return self._env.now >= self._model.horizon_s * (1 - _ROUNDED)

    def _check_progress(self) -> None:
        self._interrupted += 1
        if self._interrupted % _PATIENCE or self._model.horizon_s < math.inf:
            return
        if self.played.steps * self._model.step_s < _HOPELESS * self._env.now:
            raise EndlessJobError(
                f"job.failures: expected rarer failures or more frequent checkpoints, as after {self._interrupted:,}"
                f" interruptions goodput is below {_HOPELESS:.1%}"
            )

    def _train(self) -> Generator[simpy.Event, None, Interruption | None]:
        """Train until an interruption, which is returned, or until the job's end."""
        model, began_s = self._model, self._env.now
        if self._hosts not in self._cycles:
            self._cycles[self._hosts] = Cycles(model, self._hosts)
        cycle = self._cycles[self._hosts]
        left = (
            math.inf if math.isinf(model.steps) else math.ceil((model.steps - self.played.steps) / cycle.share - 1e-6)
        )
        done_s = math.inf if math.isinf(left) else cycle.until(left, self._first)
        cycles, grows_s = 0, math.inf
        if self._hosts < model.hosts:
            cycles, grows_s = cycle.saved_after(self._repairs[0] - began_s, self._first)
        trained_s, interruption = yield from self._until_interrupted(min(done_s, grows_s))
        is_over = self._is_over
        if interruption is None and not is_over:
            if done_s <= grows_s:
                self._log("steps", began_s, self._env.now)
                self._count(cycle, left, trained_s)
                return None
            reached = cycle.saved(cycles, self._first)
        else:
            reached = cycle.after(trained_s, self._first)
        if is_over or (interruption is not None and interruption.planned):
            self._log("steps", began_s, self._env.now)
            self._count(cycle, reached.steps, trained_s)
            self._first, self._has_saved = 1 % len(model.writing.blocks_s), True
            return None if is_over else interruption
        self._count(cycle, reached.saved * cycle.interval, reached.saved_s)
        self._has_saved = self._has_saved or reached.saved > 0
        self._first = (self._first + reached.saved) % len(model.writing.blocks_s)
        rework_s = trained_s - reached.saved_s
        self.played.lost_s["rework"] += rework_s
        why = "" if interruption is None else interruption.name
        self._log("steps", began_s, self._env.now - rework_s)
        self._log("rework", self._env.now - rework_s, self._env.now, why)
        return _GROWTH if interruption is None else interruption

    def _until_interrupted(self, whole_s: float) -> Generator[simpy.Event, None, tuple[float, Interruption | None]]:
        """Wait for `whole_s` seconds of training at most.

        Returns:
            Seconds of training, as if no part had been slow, and what interrupted it; None: nothing did.
        """
        env, trained_s = self._env, 0.0
        slow: Interruption | None = None
        slow_ends_s, factor = math.inf, 1.0
        while True:
            wait_s, kind = self._next_interruption()
            ends_s = min(env.now + (whole_s - trained_s) * factor, self._model.horizon_s)
            if slow is not None and slow_ends_s < min(ends_s, env.now + wait_s):
                ends_s, wait_s, kind = math.inf, slow_ends_s - env.now, slow
            passes_s = min(wait_s, ends_s - env.now)
            is_hit = wait_s < ends_s - env.now
            yield env.timeout(passes_s)
            trained_s += passes_s / factor
            self.played.lost_s["slow part"] += passes_s - passes_s / factor
            if not is_hit:
                return trained_s, None
            if kind.slow_for_s and slow is None:
                slow, slow_ends_s, factor = kind, env.now + kind.slow_for_s, kind.slow_factor
            else:
                self._note(kind)
                return trained_s, kind

    def _count(self, cycle: Cycles, steps: float, took_s: float) -> None:
        """Count steps on the running hosts that took so long, checkpoints included."""
        lost, alone_s = self.played.lost_s, steps * cycle.step_s
        self.played.steps += steps * cycle.share
        fed_s = alone_s / (1 - self._model.input_stall)
        lost["input"] += fed_s - alone_s
        lost["evaluation"] += fed_s * self._model.evaluation
        lost["checkpoint"] += took_s - fed_s * (1 + self._model.evaluation)
        lost["shrunk"] += alone_s - steps * cycle.share * self._model.step_s

    # Recovery.

    def _recover(self, interruption: Interruption) -> Events:
        """Wait until the job trains again, or its time is over; what interrupts the recovery begins it anew."""
        env, now, writing = self._env, interruption, self._model.writing
        saves_s = writing.blocks_s[0] + writing.background_s[0] if now.planned and now is not _GROWTH else 0.0
        while True:
            began_s, stages = env.now, [("checkpoint", saves_s)]
            stages.append(("detection", now.detection_s))
            stages.append(("replacement", self._replace(now, began_s + sum(seconds for _, seconds in stages))))
            stages.append(("restart", self._model.restart_s))
            restore_s = writing.restore_s[self._first - 1]
            stages.append(("restore", restore_s if self._has_saved else 0.0))
            wait_s, kind = self._next_interruption()
            needs_s = sum(seconds for _, seconds in stages)
            passes_s = min(needs_s, wait_s, self._model.horizon_s - began_s)
            yield env.timeout(passes_s)
            self._spend(stages, began_s, passes_s, now.name)
            if passes_s == needs_s or self._is_over:
                self._joins = False
                return
            self._note(kind)
            now, saves_s = kind, 0.0
            self._check_progress()

    def _spend(self, stages: list[tuple[str, float]], began_s: float, seconds: float, why: str) -> None:
        """Add the seconds that each stage had, in order."""
        for what, needs_s in stages:
            passes_s = min(needs_s, seconds)
            self.played.lost_s[what] += passes_s
            self._log(what, began_s, began_s + passes_s, why)
            began_s, seconds = began_s + passes_s, seconds - passes_s

    def _replace(self, interruption: Interruption, at_s: float) -> float:
        """Take a lost host out and put others in; return the seconds until the job has the hosts to go on."""
        model = self._model
        while self._repairs and self._repairs[0] <= at_s:
            heapq.heappop(self._repairs)
            self._spares += 1
        if interruption.loses_host:
            self._hosts -= 1
            heapq.heappush(self._repairs, at_s + interruption.repair_s)
        joining = min(self._spares, model.hosts - self._hosts)
        self._spares -= joining
        self._hosts += joining
        while self._hosts < model.least_hosts:
            self._whole_s = max(self._whole_s, heapq.heappop(self._repairs))
            self._hosts += 1
            joining += 1
        self._joins = self._joins or joining > 0  # also if a further interruption came before they had
        return max(self._whole_s - at_s, 0.0) + (model.replacement_s if self._joins else 0.0)

    # Times of interruptions.

    def _note(self, kind: Interruption) -> None:
        """Note that an interruption has happened."""
        self.played.counts[kind.name] += 1
        if self._given:
            self._given.pop()

    def _next_interruption(self) -> tuple[float, Interruption]:
        """Return the seconds to the next interruption, and its kind; inf where none happens."""
        if self._given is not None:
            at_s, kind = self._given[-1] if self._given else (math.inf, _GROWTH)
            return max(at_s - self._env.now, 0.0), kind
        rates = self._rates.get(self._hosts)
        if rates is None:
            share = self._hosts / self._model.hosts
            rates = list(accumulate(one.rate(share) for one in self._model.interruptions))
            self._rates[self._hosts] = rates
        if not rates or not rates[-1]:
            return math.inf, _GROWTH
        if not self._exponentials:
            self._exponentials = self._rng.standard_exponential(_BLOCK).tolist()
            self._uniforms = self._rng.random(_BLOCK).tolist()
        number = bisect_right(rates, self._uniforms.pop() * rates[-1])
        return self._exponentials.pop() / rates[-1], self._model.interruptions[number]

    def _log(self, what: str, begin_s: float, end_s: float, why: str = "") -> None:
        if self._keep and end_s > begin_s:
            self.played.phases.append(JobPhase(begin_s, end_s, what, self._hosts, why))


# A repaired host joins a shrunk job.
_GROWTH = Interruption(name="host back", per_s=0.0, planned=True)

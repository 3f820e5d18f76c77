"""Measures operators, such as those of a run by their shares of time, until all are done or the time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from real.calibration.operators.making.arena import Arena, CannotMakeError, Made
from real.calibration.operators.making.make import make
from real.calibration.operators.part import PartialMeasurement
from real.calibration.operators.timers import RepeatTimes, Timer
from real.launch.launcher import RunEnded
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.as_json import operations_of
from scenarios.seam.operations.operation import Operation
from scenarios.seam.trace import OperatorRow
from scenarios.workloads.recording.file import NAME as RECORDING
from scenarios.workloads.script.command import load_given

# Operators between two synchronisations with the GPU: few enough to leave room in its launch queue.
_BATCH = 24
_FAILED = "the GPU failed at one of 24 operators, of which it is one"


def measure(
    plan: Iterable[Operation],
    timer: Timer,
    arena: Arena,
    part: PartialMeasurement,
    *,
    seconds: float,
    look: Callable[[int], None] = lambda _: None,
) -> bool:
    """Measure the operators of a plan, which may be endless, into `part`; skip those that it already has.

    Return whether the plan was finished before the time was up: `seconds`, earlier commands' time included. `look` is
    called with the number of measured operators.

    Raises:
        RunEnded: the GPU failed. The operators among which it failed are not tried again.
    """
    known = part.known_operations()
    fresh = (each for each in plan if each not in known)
    begin_s, before_s = math.inf, part.spent_s
    for batch in _batches(fresh):
        began_s = time.monotonic()
        begin_s = min(begin_s, began_s)  # not before the first batch is planned, which reads tables
        left_s = seconds - before_s - (began_s - begin_s)
        if left_s <= 0:
            return False
        making = _Making(arena)
        try:
            taken = timer.take([(each, partial(making.make, each)) for each in batch])
        except RunEnded:
            part.add([(each, RepeatTimes(why_not=_FAILED), 0) for each in batch], time.monotonic() - began_s)
            raise
        outcome = map(making.outcome, batch, taken)
        part.add(outcome, time.monotonic() - began_s)
        look(len(part.measured))
    return True


class _Making:
    """A batch's operators as they are created: the bytes of their tensors, or why creation failed."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._needed: dict[Operation, int] = {}
        self._refused: dict[Operation, str] = {}

    def make(self, operation: Operation) -> Made | None:
        """Return the operator, ready to run; None if it cannot be created."""
        try:
            made = make(operation, self._arena)
        except CannotMakeError as error:
            self._refused[operation] = str(error)
            return None
        self._needed[operation] = self._arena.taken_bytes
        return made

    def outcome(self, operation: Operation, taken: RepeatTimes) -> tuple[Operation, RepeatTimes, int]:
        """Return an operator's outcome after the timer has run it."""
        refused = self._refused.get(operation)
        return operation, taken if refused is None else RepeatTimes(why_not=refused), self._needed.get(operation, 0)


def _batches(plan: Iterator[Operation]) -> Iterator[list[Operation]]:
    """Yield the plan in batches."""
    while batch := list(islice(plan, _BATCH)):
        yield batch


_FILE = "operators.parquet"


def scenario_of(given: Path, args: Sequence[str] | None, profile: str, hosts: int | None, gpus: int | None) -> Scenario:
    """Return the scenario that `--of` names, on the profile: a scenario's file or name, a script, or its recording.

    A script alone has arguments, and the number of hosts and of their GPUs, one unless given.

    Raises:
        ScenarioError: `given` is none of these, or contains a mistake.
    """
    overrides = {"profile": profile}
    if given.suffix == ".py":
        return load_given(given, overrides, args=args or (), hosts=hosts or 1, gpus_per_host=gpus or 1)
    refuse_world(given, hosts, gpus)
    return load_given(given.parent if given.name == RECORDING else given, overrides)


def refuse_world(given: Path, hosts: int | None, gpus: int | None) -> None:
    """Refuse hosts and GPUs unless a script is given.

    Raises:
        ScenarioError: hosts or GPUs are given.
    """
    for name, value in (("hosts", hosts), ("ranks-per-host", gpus)):
        if value is not None:
            raise ScenarioError(f"--{name} = {value}: expected with --of a script; {given} says it itself")


def by_share(
    given: Path, rows: Iterable[OperatorRow], predicted_s: Callable[[Operation], float]
) -> list[tuple[Operation, int]]:
    """Return a run's operators by their share of time, greatest first, each with its number of calls.

    Raises:
        ScenarioError: the run has no operators, or a row is damaged.
    """
    try:
        counted = [(each, row.calls) for row in rows for each in operations_of(row.operations)]
    except (KeyError, TypeError, ValueError) as error:
        raise ScenarioError(f"--of = '{given}': expected descriptions of operators: {error}") from None
    if not counted:
        is_older = given.is_dir() and not (given / _FILE).is_file()
        what = f"has no {_FILE}, as an earlier release wrote it" if is_older else "describes no operators with a law"
        raise ScenarioError(
            f"--of = '{given}': {what}; expected a run on GPUs that this release predicted, a recording, a scenario or"
            " a script"
        )
    return sorted(counted, key=lambda one: -one[1] * predicted_s(one[0]))

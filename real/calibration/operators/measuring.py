"""Measures operators one after the other until all are done or the time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from real.calibration.operators.making.arena import Arena, CannotMakeError, Made
from real.calibration.operators.making.make import make
from real.calibration.operators.part import PartialMeasurement
from real.calibration.operators.timers import RepeatTimes, Timer
from real.launch.launcher import RunEnded
from scenarios.seam.operations.operation import Operation

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
    """Measure the operators of a plan in order; skip operators that `part` has already.

    Args:
        plan: may be endless.
        timer: of the device.
        arena: the device's memory.
        part: receives the outcome.
        seconds: limit of the total time, earlier commands' time included.
        look: called with the number of measured operators.

    Returns:
        Whether the plan was finished before the time was up.

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

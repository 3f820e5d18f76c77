"""Collects the operations of each step, and hands them on together when the step has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sim.rank.operation import Operation


@dataclass(slots=True)
class _Step:
    """One step of all ranks; `ended` counts the ranks that have ended it."""

    operations: list[Operation] = field(default_factory=list)
    ended: int = 0
    unfinished: dict[Operation, None] = field(default_factory=dict)


class StepLedger:
    """A queue of steps, handed on when every rank has ended a step and awaited everything issued in it.

    Steps are handed on in the order in which they began, even if a later one ends first. Operations outside of steps
    come last, also those issued in a step that had already ended.
    """

    def __init__(self, world_size: int, take: Callable[[list[Operation]], None]) -> None:
        self.world_size = world_size
        self.whole_steps = 0
        self.ended_steps = 0  # summed over ranks
        self._take = take
        self._steps: dict[int, _Step] = {}
        self._over: list[list[Operation]] = []
        self._numbers_over: set[int] = set()
        self._others: list[Operation] = []

    def begin(self, operation: Operation, *, is_recorded: bool = True) -> None:
        """Add an issued operation; if it is not recorded, it only keeps its step open."""
        if operation.step < 0 or operation.step in self._numbers_over:
            if is_recorded:
                self._others.append(operation)
            return
        step = self._steps.get(operation.step)
        if step is None:
            step = self._steps[operation.step] = _Step()
        if is_recorded:
            step.operations.append(operation)
        step.unfinished[operation] = None

    def finish(self, operation: Operation) -> None:
        """Remove an operation that has ended from its step's unfinished ones.

        If the operation is the step itself, one more rank has ended that step.
        """
        step = self._steps.get(operation.step)
        if step is None:
            return
        step.unfinished.pop(operation, None)
        if operation.kind == "step":
            step.ended += 1
            self.ended_steps += 1
            self.whole_steps += step.ended == self.world_size
        if step.ended >= self.world_size and not step.unfinished:
            self._note_over()

    def give_up(self, step: Operation) -> None:
        """Move a rank's operations out of a step, and drop the step's own operation from the run."""
        found, own = self._steps[step.step], step.step
        theirs = [each for each in found.operations if each.rank == step.rank and each is not step]
        found.operations = [each for each in found.operations if each.rank != step.rank]
        for each in [each for each in found.unfinished if each.rank == step.rank]:
            del found.unfinished[each]
        for each in (*theirs, step):
            each.step = -1
        self._others += theirs
        if not found.operations:
            del self._steps[own]

    def hand_on(self) -> None:
        """Hand on the ended steps. Call it outside ranks' coroutines, so that a full disk is not taken for their
        mistake.
        """
        while self._over:
            self._take(self._over.pop(0))

    def close(self) -> None:
        """Hand on everything that has ended, awaited or not, at the end of the run; further operations are ignored."""
        self.hand_on()
        left = [operation for step in self._steps.values() for operation in step.operations] + self._others
        self.forget()
        if ended := [operation for operation in left if operation.end_ns >= 0]:
            self._take(ended)

    def forget(self) -> None:
        """Drop all remaining operations, so that abandoned coroutines that end later have no effect."""
        self._steps, self._others, self._over = {}, [], []

    def _note_over(self) -> None:
        # In the order of begins, up to the first step that is still open: later ones that have ended wait for it.
        for number, step in list(self._steps.items()):
            if step.ended < self.world_size or step.unfinished:
                return
            del self._steps[number]
            self._numbers_over.add(number)
            self._over.append(step.operations)

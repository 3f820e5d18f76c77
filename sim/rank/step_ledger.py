"""Which operations of a run have ended: those of a step are handed on together."""

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
    """Hands on the operations of a step when every rank has ended it and awaited all that was issued in it.

    Steps are handed on in the order in which they began, whichever is over first. What is outside of steps comes last,
    and so does what is issued in a step that was over before.
    """

    def __init__(self, world_size: int, take: Callable[[list[Operation]], None]) -> None:
        self.world_size = world_size
        self.whole_steps = 0
        self.ended_steps = 0  # of all ranks together
        self._take = take
        self._steps: dict[int, _Step] = {}
        self._over: list[list[Operation]] = []
        self._numbers_over: set[int] = set()
        self._others: list[Operation] = []

    def begin(self, operation: Operation, *, is_recorded: bool = True) -> None:
        """Something was issued; if it is not recorded, it only keeps its step open."""
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
        """It was awaited, or need not be; of a step, its rank has ended it."""
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
        """Take what a rank has issued in a step out of it, and the step's own operation out of the run."""
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
        """The steps that are over; not to be called from a rank's coroutine, whose mistake a full disk is not."""
        while self._over:
            self._take(self._over.pop(0))

    def close(self) -> None:
        """The run is over: hand on all that has ended, awaited or not; nothing is taken in any more."""
        self.hand_on()
        left = [operation for step in self._steps.values() for operation in step.operations] + self._others
        self.forget()
        if ended := [operation for operation in left if operation.end_ns >= 0]:
            self._take(ended)

    def forget(self) -> None:
        """What is left comes to nothing, also what ends when its coroutine is thrown away."""
        self._steps, self._others, self._over = {}, [], []

    def _note_over(self) -> None:
        for number, step in list(self._steps.items()):
            if step.ended < self.world_size or step.unfinished:
                return
            del self._steps[number]
            self._numbers_over.add(number)
            self._over.append(step.operations)

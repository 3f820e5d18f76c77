"""Which operations of a run have ended: a step's are handed on together; what becomes of them is the caller's."""

from __future__ import annotations

from collections.abc import Callable

from sim.rank.open_span import Draft


class _Step:
    """What is known of one step of all ranks."""

    __slots__ = ("drafts", "ended", "unfinished")

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.ended = 0  # ranks
        self.unfinished: dict[Draft, None] = {}


class Ledger:
    """A step is over when every rank has ended it and awaited all that was issued in it; then its drafts are handed on.

    Steps are handed on in the order in which they began, whichever is over first. What is outside of steps comes last,
    and so does what is issued in a step that was over before.
    """

    def __init__(self, world_size: int, take: Callable[[list[Draft]], None]) -> None:
        self.world_size = world_size
        self.whole_steps = 0
        self.ended_steps = 0  # of all ranks together
        self._take = take
        self._steps: dict[int, _Step] = {}
        self._over: list[list[Draft]] = []
        self._numbers_over: set[int] = set()
        self._others: list[Draft] = []

    def begin(self, draft: Draft, *, recorded: bool = True) -> None:
        """Something was issued; if it is not recorded, it only keeps its step open."""
        if draft.step < 0 or draft.step in self._numbers_over:
            if recorded:
                self._others.append(draft)
            return
        step = self._steps.get(draft.step)
        if step is None:
            step = self._steps[draft.step] = _Step()
        if recorded:
            step.drafts.append(draft)
        step.unfinished[draft] = None

    def finish(self, draft: Draft) -> None:
        """It was awaited, or need not be; of a step, its rank has ended it."""
        step = self._steps.get(draft.step)
        if step is None:
            return
        step.unfinished.pop(draft, None)
        if draft.kind == "step":
            step.ended += 1
            self.ended_steps += 1
            self.whole_steps += step.ended == self.world_size
        if step.ended >= self.world_size and not step.unfinished:
            self._note_over()

    def hand_on(self) -> None:
        """The steps that are over; not to be called from a rank's coroutine, whose mistake a full disk is not."""
        while self._over:
            self._take(self._over.pop(0))

    def close(self) -> None:
        """The run is over: hand on all that has ended, awaited or not; nothing is taken in any more."""
        self.hand_on()
        left = [draft for step in self._steps.values() for draft in step.drafts] + self._others
        self.forget()
        if ended := [draft for draft in left if draft.end_ns >= 0]:
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
            self._over.append(step.drafts)

"""Something issued in simulated time; what it is and when it ends is left to `rank`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from sim.meeting import Meeting
from sim.process import Clock, Signal
from sim.world import Draft, World

T = TypeVar("T")


class SimWork(Generic[T]):
    """Something issued in simulated time."""

    __slots__ = ("_clock", "_draft", "_signal", "_world", "meeting")

    def __init__(self, world: World, draft: Draft) -> None:
        self._world = world
        self._clock: Clock = world.machine.clock
        self._draft = draft
        self._signal: Signal[T] = Signal()
        self.meeting: Meeting | None = None
        world.outstanding[draft] = self

    def finish(self, value: T | None, error: BaseException | None = None) -> None:
        """It ends now."""
        self._draft.end_ns = self._clock.now_ns
        self._signal.fire(value, error)

    def __await__(self) -> Generator[Any, Any, T]:
        draft, world = self._draft, self._world
        world.outstanding.pop(draft, None)
        draft.wait_from_ns = self._clock.now_ns
        world.waiting[draft] = self
        yield from self._signal.wait(self._clock)
        del world.waiting[draft]
        draft.wait_until_ns = self._clock.now_ns
        if self._signal.error is not None:
            raise self._signal.error
        return self._signal.value  # type: ignore[return-value]

    @property
    def error(self) -> BaseException | None:
        """What went wrong in it, if that is known by now."""
        return self._signal.error

    def describe(self) -> str:
        """What a rank that waits for this waits for."""
        if self.meeting is None:
            return self._draft.describe()
        call = f"{self._draft.name} (call {self.meeting.index} of group {self.meeting.group.name})"
        missing = self.meeting.missing
        if not missing:
            return call
        ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        return f"{call}, which {ranks} never entered"

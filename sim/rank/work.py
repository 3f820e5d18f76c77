"""Something issued in simulated time; what it is and when it ends is left to `rank`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from sim.clock import Clock, Signal
from sim.hosts.cores import Thread
from sim.rank.open_span import Draft
from sim.rank.rendezvous import Meeting
from sim.rank.world import World

T = TypeVar("T")


class SimWork(Generic[T]):
    """Something issued in simulated time."""

    __slots__ = ("_clock", "_draft", "_signal", "_thread", "_world", "meeting")

    def __init__(self, world: World, draft: Draft, thread: Thread | None) -> None:
        """`thread` is the program's, where hosts are modelled."""
        self._thread = thread
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
        world.waiting[draft] = self
        yield from self._reached()
        draft.wait_from_ns = self._clock.now_ns
        is_over = self._signal.done
        yield from self._signal.wait(self._clock)
        if not is_over:
            yield from self._woken()
        del world.waiting[draft]
        draft.wait_until_ns = self._clock.now_ns
        world.ledger.finish(draft)
        if self._signal.error is not None:
            raise self._signal.error
        return self._signal.value  # type: ignore[return-value]

    def _reached(self) -> Generator[Any, Any, None]:
        """When the program's thread has done all that comes before the await."""
        if self._thread is not None:
            signal: Signal[None] = Signal()
            self._thread.run(0, signal.fire)
            yield from signal.wait(self._clock)

    def _woken(self) -> Generator[Any, Any, None]:
        """When the program's thread, which slept, goes on; on a CPU it does not sleep while it computes."""
        hosts = self._world.machine.hosts
        if self._thread is not None and hosts is not None and self._draft.kernel is None:
            signal: Signal[None] = Signal()
            self._thread.wake(hosts.tcp.message_ns, signal.fire)
            yield from signal.wait(self._clock)

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

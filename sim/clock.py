"""Wraps SimPy: integer-ns time, coroutines as processes, and one-shot events."""

from __future__ import annotations

import contextvars
import heapq
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from itertools import count
from typing import Any, Generic, TypeVar

import simpy
import torch

T = TypeVar("T")

# SimPy priority behind all other events of an instant, so that all changes of one instant are settled together.
_LAST = 2

# SimPy priority in front of all other events of an instant.
_FIRST = 0

# Events between two calls of `look`: an event takes 10 us and more, a call with nothing to do 0.1 us.
_EVENTS_A_LOOK = 64


class Signal(Generic[T]):
    """A one-shot event with a value or an exception: `await` it, or register callbacks."""

    __slots__ = ("_event", "_functions", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None
        self._event: simpy.Event | None = None
        self._functions: list[Callable[[], None]] = []

    def fire(self, value: T | None = None, error: BaseException | None = None) -> None:
        """Trigger the event now; a second call is a bug of the caller."""
        assert not self.done, "a signal fires once"
        self.done, self.value, self.error = True, value, error
        # SimPy resumes waiting coroutines in a later event of this instant, so functions run before them.
        if self._event is not None:
            self._event.succeed()
        functions, self._functions = self._functions, []
        for function in functions:
            function()

    def then(self, function: Callable[[], None]) -> None:
        """Call `function` when the signal fires, at once if it has fired."""
        if self.done:
            function()
        else:
            self._functions.append(function)

    def wait(self, clock: Clock) -> Generator[simpy.Event, Any, None]:
        """Suspend the running process until the signal fires; an `__await__` yields from this generator."""
        if not self.done:
            if self._event is None:
                self._event = clock.new_event()
            yield self._event


def all_of(signals: Sequence[Signal[None]], function: Callable[[], None]) -> None:
    """Call `function` once all signals have fired."""
    left = len(signals)

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            function()

    for signal in signals:
        signal.then(one)


class Clock:
    """A simulated clock whose processes are coroutines that suspend only in `Signal.wait` and `sleep`.

    `now_ns` is the present, in ns since the start.
    """

    def __init__(self) -> None:
        self._environment = simpy.Environment()
        self._processes = weakref.WeakSet[Generator[simpy.Event, Any, None]]()  # those that have ended are gone
        self._changes: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self.now_ns = 0

    def new_event(self) -> simpy.Event:
        """Return a bare SimPy event, for `Signal` alone."""
        return self._environment.event()

    def start(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine as a process from this instant on; `begin` creates it at its first step, and its errors end
        `run`.
        """
        process = _recording_by_itself(begin)
        self._processes.add(process)
        self._environment.process(process)

    def close(self) -> None:
        """Close the processes that a failed run leaves suspended.

        Garbage collection, later, could end what these processes own (pipes, processes of scripts) before the
        processes.
        """
        for process in list(self._processes):
            process.close()

    def call_in(self, delay_ns: int, function: Callable[[], None]) -> None:
        """Call `function` after a delay; calls of one instant keep their order."""
        timeout = self._environment.timeout(delay_ns)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: function())

    def call_last(self, function: Callable[[], None]) -> None:
        """Call `function` at this instant, after all other events of the instant."""
        event = self._environment.event()
        assert event.callbacks is not None
        event.callbacks.append(lambda _: function())
        # `Event.succeed` would schedule the event at normal priority, so it is triggered by hand.
        event._ok, event._value = True, None
        self._environment.schedule(event, priority=_LAST)  # type: ignore[arg-type]

    def call_before(self, at_ns: int, function: Callable[[], None]) -> None:
        """Call `function` at `at_ns`, before all other events of that instant; never if the run has ended by then."""
        heapq.heappush(self._changes, (at_ns, next(self._numbers), function))

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Run until no event is left.

        `look` is called every `_EVENTS_A_LOOK` events; an exception in it ends the run.
        """
        step, peek = self._environment.step, self._environment.peek
        while True:
            for _ in range(_EVENTS_A_LOOK):
                next_ns = peek()
                if next_ns == simpy.core.Infinity:
                    return
                if self._changes and self._changes[0][0] <= next_ns:
                    self._change(*heapq.heappop(self._changes))
                    continue
                self.now_ns = int(next_ns)
                step()
            look()

    def _change(self, at_ns: int, _: int, function: Callable[[], None]) -> None:
        """Make a call that is due an event, as callbacks of SimPy's events see its time."""
        event = self._environment.event()
        assert event.callbacks is not None
        event.callbacks.append(lambda _: function())
        event._ok, event._value = True, None
        self._environment.schedule(event, priority=_FIRST, delay=at_ns - self._environment.now)  # type: ignore[arg-type]


def _recording_by_itself(begin: Callable[[], Coroutine[Any, Any, Any]]) -> Generator[simpy.Event, Any, None]:
    """Drive a coroutine with its own context variables and its own grad mode, which is on at first as in a rank's
    process.
    """
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
    context = contextvars.copy_context()
    own_grad, coroutine = True, context.run(begin)
    while True:
        # Grad mode belongs to the thread, which all processes share: swap it around each resumption.
        other_grad = is_grad_enabled()
        set_grad_enabled(own_grad)
        try:
            event = context.run(coroutine.send, None)
        except StopIteration:
            return
        finally:
            own_grad = is_grad_enabled()
            set_grad_enabled(other_grad)
        try:
            yield event
        except GeneratorExit:
            context.run(coroutine.close)
            raise

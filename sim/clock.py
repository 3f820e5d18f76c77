"""Wraps SimPy: integer-ns time, coroutines as processes, and one-shot events."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

import simpy
import torch

T = TypeVar("T")

# Later than everything else of the same instant, so that all that happens at one time is settled together.
_LAST = 2

# An event takes 10 us and more, a look that has nothing to do 0.1 us.
_EVENTS_A_LOOK = 64


class Signal(Generic[T]):
    """A one-shot event: `await` it, or register callbacks. It gives a value or an exception."""

    __slots__ = ("_event", "_functions", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None
        self._event: simpy.Event | None = None
        self._functions: list[Callable[[], None]] = []

    def fire(self, value: T | None = None, error: BaseException | None = None) -> None:
        """Trigger the event now; firing twice is a mistake of ours."""
        assert not self.done, "a signal fires once"
        self.done, self.value, self.error = True, value, error
        if self._event is not None:
            self._event.succeed()
        functions, self._functions = self._functions, []
        for function in functions:
            function()

    def then(self, function: Callable[[], None]) -> None:
        """Call `function` when it happens: at once if it has."""
        if self.done:
            function()
        else:
            self._functions.append(function)

    def wait(self, clock: Clock) -> Generator[simpy.Event, Any, None]:
        """What an `__await__` yields from: suspends the running process until it has happened."""
        if not self.done:
            if self._event is None:
                self._event = clock.new_event()
            yield self._event


def all_of(signals: Sequence[Signal[None]], function: Callable[[], None]) -> None:
    """Call `function` when all have happened."""
    left = len(signals)

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            function()

    for signal in signals:
        signal.then(one)


class Clock:
    """The simulated clock. Processes are coroutines that suspend only in `Signal.wait` and `sleep`.

    `now_ns` is the present, in ns since the start.
    """

    def __init__(self) -> None:
        self._environment = simpy.Environment()
        self._processes = weakref.WeakSet[Generator[simpy.Event, Any, None]]()  # those that have ended are gone
        self.now_ns = 0

    def new_event(self) -> simpy.Event:
        """A bare SimPy event, for `Signal` alone."""
        return self._environment.event()

    def start(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine as a process from this instant on; it is made when it begins. What it raises ends `run`."""
        process = _recording_by_itself(begin)
        self._processes.add(process)
        self._environment.process(process)

    def close(self) -> None:
        """End the processes that a failed run leaves suspended.

        Garbage collection, later, could end what they hold (pipes, processes of scripts) before it ends them.
        """
        for process in list(self._processes):
            process.close()

    def call_in(self, delay_ns: int, function: Callable[[], None]) -> None:
        """Call `function` after a delay; calls of one instant keep their order."""
        timeout = self._environment.timeout(delay_ns)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: function())

    def call_last(self, function: Callable[[], None]) -> None:
        """Call `function` at this instant, after all else that happens in it."""
        event = self._environment.event()
        assert event.callbacks is not None
        event.callbacks.append(lambda _: function())
        event._ok, event._value = True, None
        self._environment.schedule(event, priority=_LAST)  # type: ignore[arg-type]

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Run until nothing more will happen. `look` is called every few events; what it raises ends the run, too."""
        step, peek = self._environment.step, self._environment.peek
        while True:
            for _ in range(_EVENTS_A_LOOK):
                next_ns = peek()
                if next_ns == simpy.core.Infinity:
                    return
                self.now_ns = int(next_ns)
                step()
            look()


def _recording_by_itself(begin: Callable[[], Coroutine[Any, Any, Any]]) -> Generator[simpy.Event, Any, None]:
    """Drive a coroutine with context variables of its own, and a grad mode, at first on as in a real rank's process:
    torch's is the thread's.
    """
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
    context = contextvars.copy_context()
    own, coroutine = True, context.run(begin)
    while True:
        others = is_grad_enabled()
        set_grad_enabled(own)
        try:
            event = context.run(coroutine.send, None)
        except StopIteration:
            return
        finally:
            own = is_grad_enabled()
            set_grad_enabled(others)
        try:
            yield event
        except GeneratorExit:
            context.run(coroutine.close)
            raise

"""Passes of a module that stop on their way, so that something else can be awaited before they go on.

What torch runs, a module's forward or autograd, calls back but can wait for nothing that an `await` gives: so it has a
thread, which stands still between the stops. Only one of the two threads runs at any time. Threads are kept for later
passes: to OpenMP each new one is new, with a team of its own to start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from scenarios.modules.fully_sharded.units import Mark
from scenarios.modules.trace import Ready


class _PassThread(threading.Thread):
    """Runs one pass after the other."""

    def __init__(self) -> None:
        super().__init__(name="pass", daemon=True)
        self.tasks = SimpleQueue[Callable[[], object]]()
        self.start()

    def run(self) -> None:
        while True:
            self.tasks.get()()
            _idle.append(self)


_idle: list[_PassThread] = []


class Paused:
    """Runs a function in a thread of its own, from stop to stop; at once and here if it does not stop."""

    def __init__(self, function: Callable[[], Any], device: torch.device, *, stops: bool = True) -> None:
        self.result: Any = None
        self._stops = stops
        self._function, self._device = function, device
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._has_begun = False
        self._error: BaseException | None = None
        self._is_over = False

    def advance(self) -> None:
        """Go on until the function stops or ends. Raises what it raises."""
        if not self._stops:
            self.result = self._function()
            return
        if not self._has_begun:
            self._has_begun = True
            stream: AbstractContextManager[object] = nullcontext()
            if self._device.type == "cuda":
                stream = torch.cuda.stream(torch.cuda.current_stream(self._device))
            thread = _idle.pop() if _idle else _PassThread()
            thread.tasks.put(partial(self._run, stream, torch.get_num_threads()))
        elif self._is_over:
            return
        else:
            self._go.release()
        self._stands.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stand still until `advance`; for the function."""
        self._stands.release()
        self._go.acquire()

    def _run(self, stream: AbstractContextManager[object], threads: int) -> None:
        try:
            if torch.get_num_threads() != threads:  # what the rank's thread was told holds for that one alone
                torch.set_num_threads(threads)
            with stream:
                self.result = self._function()
        except BaseException as error:  # raised where it is asked to go on
            self._error = error
        self._is_over = True
        self._stands.release()


class PausedBackward:
    """A backward pass, and what comes `then`, that stops where gradients are ready, or at units."""

    def __init__(
        self, outputs: Sequence[Tensor], gradients: Sequence[Tensor | None], then: Callable[[], object] = lambda: None
    ) -> None:
        def run() -> None:
            torch.autograd.backward(outputs, gradients)
            then()

        self._pass = Paused(run, outputs[0].device)
        self._stop: Ready | Mark | None = None
        self._arrived: set[tuple[int, int] | Mark] = set()

    def has_arrived(self, *, parameter: int = -1, input: int = -1) -> None:
        """Note a gradient; for autograd, which stands still if it is the one that is waited for."""
        self._arrived.add((parameter, input))
        stop = self._stop
        if isinstance(stop, Ready) and (parameter, input) == (stop.parameter, stop.input):
            self._pass.stop()

    def has_reached(self, mark: Mark) -> None:
        """Note that it is at a unit; for autograd, as `has_arrived`."""
        self._arrived.add(mark)
        if mark == self._stop:
            self._pass.stop()

    def is_there(self, stop: Ready | Mark) -> bool:
        """Whether that gradient has its value, or the pass has come to that mark."""
        return (stop if isinstance(stop, Mark) else (stop.parameter, stop.input)) in self._arrived

    def advance(self, stop: Ready | Mark | None) -> None:
        """Go on until the gradient is ready, or to the mark; None: to the end."""
        self._stop = stop
        self._pass.advance()

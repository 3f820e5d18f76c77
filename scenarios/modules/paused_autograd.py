"""Passes of a module that pause, so that the program can await something before they continue.

torch runs a module's forward or autograd as plain calls, which cannot `await`. A pass therefore runs in its own thread,
which blocks at its stops; only one of the two threads runs at any time. Threads are reused for later passes, as OpenMP
starts a new team for each new thread.
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
    """A thread that runs passes in sequence."""

    def __init__(self) -> None:
        # A daemon: a pass that stays paused when its run fails must not keep the process alive.
        super().__init__(name="pass", daemon=True)
        self.tasks = SimpleQueue[Callable[[], object]]()
        self.start()

    def run(self) -> None:
        while True:
            self.tasks.get()()
            _idle.append(self)  # only now: a pass that begins earlier would queue behind this one's end


_idle: list[_PassThread] = []


class Paused:
    """A function (a backward pass) that runs in its own thread, and pauses where it calls `stop`.

    With `stops` false the function never pauses, and runs in the caller's thread.
    """

    def __init__(self, function: Callable[[], Any], device: torch.device, *, stops: bool = True) -> None:
        self.result: Any = None
        self._stops = stops
        self._function, self._device = function, device
        # Two semaphores hand control back and forth: only one of the two threads runs at any time.
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._has_begun = False
        self._error: BaseException | None = None
        self._is_over = False

    def advance(self) -> None:
        """Run until the function stops or ends; raise its exception."""
        if not self._stops:
            self.result = self._function()
            return
        if not self._has_begun:
            self._has_begun = True
            stream: AbstractContextManager[object] = nullcontext()
            if self._device.type == "cuda":
                # The current stream belongs to a thread: the pass's thread must use the caller's.
                stream = torch.cuda.stream(torch.cuda.current_stream(self._device))
            # Passes of several ranks may be paused at once, so there can be more threads than one.
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
        """Block until `advance`; called by the function."""
        self._stands.release()
        self._go.acquire()

    def _run(self, stream: AbstractContextManager[object], threads: int) -> None:
        try:
            if torch.get_num_threads() != threads:  # the setting of the rank's thread does not apply to this one
                torch.set_num_threads(threads)
            with stream:
                self.result = self._function()
        except BaseException as error:  # raised by `advance`, in the caller's thread
            self._error = error
        self._is_over = True
        self._stands.release()


class PausedBackward:
    """A backward pass, followed by `then`, that stops when a gradient is ready, or at a unit."""

    def __init__(
        self, outputs: Sequence[Tensor], gradients: Sequence[Tensor | None], then: Callable[[], object] = lambda: None
    ) -> None:
        def run() -> None:
            torch.autograd.backward(outputs, gradients)
            then()

        self._pass = Paused(run, outputs[0].device)
        self._stop: Ready | Mark | None = None
        self._arrived: set[tuple[int, int] | Mark] = set()

    # Called from autograd's engine: a stop here suspends it inside its hook.
    def has_arrived(self, *, parameter: int = -1, input: int = -1) -> None:
        """Record a gradient, and block if the pass is to stop there; called by autograd."""
        self._arrived.add((parameter, input))
        stop = self._stop
        if isinstance(stop, Ready) and (parameter, input) == (stop.parameter, stop.input):
            self._pass.stop()

    def has_reached(self, mark: Mark) -> None:
        """Record a mark at a unit, and block if the pass is to stop there; called by autograd."""
        self._arrived.add(mark)
        if mark == self._stop:
            self._pass.stop()

    def is_there(self, stop: Ready | Mark) -> bool:
        """Return whether that gradient has its value, or the pass has reached that mark."""
        return (stop if isinstance(stop, Mark) else (stop.parameter, stop.input)) in self._arrived

    def advance(self, stop: Ready | Mark | None) -> None:
        """Run until the gradient is ready, or the mark is reached; None: to the end."""
        self._stop = stop
        self._pass.advance()

"""A backward pass that stops where gradients are ready, so that what comes of them can begin before it goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from scenarios.modules.trace import Ready


class PausedBackward:
    """Runs autograd in a thread of its own, at most one stop ahead of who calls `advance`.

    Autograd itself calls back when a gradient is there, but can wait for nothing that an `await` gives: so it has a
    thread, which stands still between the stops, and only one of the two runs at any time.
    """

    def __init__(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        self._outputs, self._gradients = outputs, gradients
        self._stop: Ready | None = None
        self._arrived: set[tuple[int, int]] = set()
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._is_over = False

    def has_arrived(self, *, parameter: int = -1, input: int = -1) -> None:
        """Note a gradient; for autograd's thread, which stands still if it is the one that is waited for."""
        self._arrived.add((parameter, input))
        stop = self._stop
        if stop is not None and (parameter, input) == (stop.parameter, stop.input):
            self._stands.release()
            self._go.acquire()

    def is_there(self, ready: Ready) -> bool:
        """Whether that gradient has its value."""
        return (ready.parameter, ready.input) in self._arrived

    def advance(self, stop: Ready | None) -> None:
        """Go on until the gradient is ready; None: to the end. Raises what autograd raises."""
        self._stop = stop
        if self._thread is None:
            stream: AbstractContextManager[object] = nullcontext()
            if self._outputs[0].is_cuda:
                stream = torch.cuda.stream(torch.cuda.current_stream(self._outputs[0].device))
            self._thread = threading.Thread(target=self._run, args=(stream,), name="backward", daemon=True)
            self._thread.start()
        elif not self._is_over:
            self._go.release()
        else:
            return
        self._stands.acquire()
        if self._error is not None:
            raise self._error

    def _run(self, stream: AbstractContextManager[object]) -> None:
        try:
            with stream:
                torch.autograd.backward(self._outputs, self._gradients)
        except BaseException as error:  # raised where the pass is asked to go on
            self._error = error
        self._is_over = True
        self._stands.release()

"""Handles Ctrl-C during a simulation: the first lets the run end in good order, the second interrupts it."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class Interrupt:
    """Within it the first Ctrl-C only sets `asked`; the next is a KeyboardInterrupt, as without it.

    Where something else than Python's own handler waits for Ctrl-C (nohup ignores it, say), that stays.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True

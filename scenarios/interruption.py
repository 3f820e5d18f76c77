"""Ends a command by a signal: the first one unwinds it, later ones are ignored, and the exit code is 128 + its number.

Imports the standard library and the collector only, so that an entry point can install it before slow imports.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import NoReturn

from scenarios.collector import freeze_loaded

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


NOTHING = "interrupted; nothing was written"


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command; `number` is the signal's number, `words` are what was done by then."""

    def __init__(self, number: int, words: str = "") -> None:
        super().__init__(number, words)  # SimPy re-creates exceptions from their arguments
        self.number, self._words = number, words

    def __str__(self) -> str:
        return self._words

    @classmethod
    def of(cls, interruption: KeyboardInterrupt, words: str) -> Interrupted:
        """Return an interruption by the same signal, with these words."""
        return cls(getattr(interruption, "number", signal.SIGINT), words)


def end(command: Callable[[], int], leave: Callable[[int], NoReturn] = sys.exit) -> NoReturn:
    """Run a command as this process, and exit with its exit code, or with that of the signal that ended it."""
    for number in _find_heeded():
        signal.signal(number, _unwind)
    freeze_loaded()
    try:
        code = command() if _has_directory() else 2
    except KeyboardInterrupt as interruption:
        code = code_of(interruption)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    for number in _find_heeded():
        signal.signal(number, signal.SIG_IGN)  # Python's shutdown would print a traceback
    gc.freeze()  # else the shutdown's collection takes 0.4 s with torch and pandas
    leave(code)


def _has_directory() -> bool:
    """Return whether the working directory exists; print a message if not, as paths are relative to it."""
    try:
        os.getcwd()
    except OSError:
        print("the working directory is gone; expected to be started in one that is there", file=sys.stderr)
        return False
    return True


def code_of(interruption: KeyboardInterrupt, said: str = "") -> int:
    """Return an interrupted command's exit code, and print its message, or `said` if it has none."""
    if words := str(interruption) or said:
        after_echo = "\n" if said == words and sys.stderr.isatty() else ""  # a terminal shows ^C
        print(f"{after_echo}{words}", file=sys.stderr)
    return 128 + int(getattr(interruption, "number", signal.SIGINT))


@contextmanager
def hold_signals() -> Iterator[list[int]]:
    """Collect signals in the yielded list instead of raising; if any came, later ones are ignored until `end` exits."""
    taken: list[int] = []
    # A handler that only notes the signal: raising in the middle of a write would leave half a file.
    before = {number: signal.signal(number, lambda one, _: taken.append(one)) for number in _find_heeded()}
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, _ignore if taken and handler is _unwind else handler)


def _find_heeded() -> list[signal.Signals]:
    """Return the signals that this process was not started to ignore, as by nohup; outside the main thread none."""
    if current_thread() is not main_thread():  # where Python sets no handlers
        return []
    return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _unwind(number: int, frame: object) -> None:
    for each in _find_heeded():
        signal.signal(each, _ignore)  # a second signal must not interrupt the clean-up
    raise Interrupted(number)


def _ignore(number: int, frame: object) -> None:
    pass

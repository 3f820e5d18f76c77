"""Ends a command by a signal: the first one unwinds it, later ones are ignored, and the exit code is 128 + its number.

Of the standard library only, so that an entry point has it before anything that takes long to load.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)  # SimPy makes exceptions anew from their arguments
        self.number = number

    def __str__(self) -> str:
        return ""


def end(command: Callable[[], int], leave: Callable[[int], NoReturn] = sys.exit) -> NoReturn:
    """Be the process of a command: run it, and leave with its exit code, or with that of the signal which ended it."""
    for number in _heeded():
        signal.signal(number, _unwind)
    gc.freeze()  # as `collector.loading` does from here on
    try:
        code = command() if _has_directory() else 2
    except KeyboardInterrupt as interruption:
        code = code_of(interruption)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    for number in _heeded():
        signal.signal(number, signal.SIG_IGN)  # what follows is Python's own end, which would complain
    gc.freeze()  # and look through all that was loaded, for 0.4 s with torch and pandas
    leave(code)


def _has_directory() -> bool:
    """Return whether the working directory is there, to which paths are relative; say so if it is not."""
    try:
        os.getcwd()
    except OSError:
        print("the working directory is gone; expected to be started in one that is there", file=sys.stderr)
        return False
    return True


def code_of(interruption: KeyboardInterrupt) -> int:
    """The exit code of an interrupted command, whose last words, if there are any, are printed."""
    if str(interruption):
        print(interruption, file=sys.stderr)
    return 128 + int(getattr(interruption, "number", signal.SIGINT))


@contextmanager
def held() -> Iterator[list[int]]:
    """Keep signals in a list, for the caller to look at. If any came, those after it are ignored for good in `end`."""
    taken: list[int] = []
    before = {number: signal.signal(number, lambda one, _: taken.append(one)) for number in _heeded()}
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, _ignore if taken and handler is _unwind else handler)


def _heeded() -> list[signal.Signals]:
    """All but those that this process was told to ignore from the start, as by nohup."""
    return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _unwind(number: int, frame: object) -> None:
    for each in _heeded():
        signal.signal(each, _ignore)  # what is cleaned up on the way out is not to be cut short
    raise Interrupted(number)


def _ignore(number: int, frame: object) -> None:
    pass

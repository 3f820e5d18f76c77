"""Runs programs without an event loop: a real operation never suspends, so that one `send` runs a whole coroutine."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from real.rank.journal import Entry, Journal
from real.rank.lanes import Mark, StreamLane
from scenarios.seam.errors import ProgramError

T = TypeVar("T")


def play(coroutine: Coroutine[Any, Any, T], rank: int) -> T:
    """Run a coroutine and return its result.

    Raises:
        ProgramError: it awaited something other than the work of a verb; else whatever it raises.
    """
    try:
        yielded = coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise ProgramError(
        f"rank {rank}: {name_of(coroutine)} awaited something that yielded {type(yielded).__name__};"
        " a program awaits only what the verbs of Rank return"
    )


def name_of(coroutine: Coroutine[Any, Any, Any]) -> str:
    """Return the name of the coroutine's function."""
    return str(getattr(coroutine, "__name__", type(coroutine).__name__))


class StreamThread:
    """A stream's thread, which runs jobs in sequence; it starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job after all earlier ones; it must not raise."""
        # A daemon, so that a rank can end while one of its jobs hangs in a collective.
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread after all submitted jobs; none may follow."""
        self._jobs.put(None)

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            job()


class Spawned(Generic[T]):
    """A coroutine that another thread runs, as a `Work` with the coroutine's result."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], journal: Journal, thread: StreamThread, entry: Entry) -> None:
        self._coroutine, self._journal, self._thread, self._entry = coroutine, journal, thread, entry
        self._over = threading.Event()
        self._context = contextvars.copy_context()  # taken at the spawn, whose step the coroutine inherits
        self._called_at: Mark = entry.lane.mark()
        self._ended_at: Mark | None = None
        self._value: T | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Submit the coroutine to the thread."""
        self._thread.submit(lambda: self._context.run(self._play))

    def __await__(self) -> Generator[Any, Any, T]:
        if self._thread.is_here and not self._over.is_set():
            raise ProgramError(
                f"rank {self._journal.rank}: {self._entry.describe()} is awaited on the stream that it would run on:"
                " it can never begin"
            )
        self._journal.wait_begins(self._entry)
        # Blocks only this thread: the coroutine runs on another one, whose collectives do not need this thread.
        self._over.wait()
        if self._ended_at is not None:
            # The thread may be ahead of its device: the caller's stream waits for the coroutine's last launch.
            self._entry.lane.wait_for(self._ended_at, self._value)
        self._journal.wait_ends(self._entry, has_waited=True)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
        yield  # pragma: no cover - makes this a generator

    def _play(self) -> None:
        lane: StreamLane = self._entry.lane
        try:
            with lane.playing(self._coroutine, self._called_at):
                try:
                    self._value = play(self._coroutine, self._journal.rank)
                finally:
                    self._ended_at = lane.mark()
        except BaseException as error:  # raised again where the spawn is awaited
            self._error = error
        # Last: a waiting thread reads value, error and end as soon as the event is set.
        self._over.set()

"""What a real rank's verbs return."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from real.libraries.errors import failed
from real.rank.context import RankContext
from real.rank.journal import Entry
from real.rank.lanes import Pending
from scenarios.seam.errors import CollectiveError

T = TypeVar("T")


class Issued(Generic[T]):
    """A collective that was issued."""

    __slots__ = ("_context", "_entry", "_pending", "_result")

    def __init__(self, context: RankContext, entry: Entry, pending: Pending, result: T) -> None:
        self._context, self._entry, self._pending, self._result = context, entry, pending, result

    def __await__(self) -> Generator[Any, Any, T]:
        entry, journal = self._entry, self._context.journal
        was_over = self._pending.is_over()
        journal.wait_begins(entry)
        try:
            self._pending.wait()
        except RuntimeError as error:
            raise failed(self._context.rank, entry.describe(), error) from error
        except CollectiveError:
            entry.end = entry.lane.mark()
            raise
        finally:
            journal.wait_ends(entry, has_waited=not was_over)
        return self._result
        yield  # pragma: no cover - makes this a generator


class Computed(Generic[T]):
    """A kernel that was launched (on a CPU: that has run)."""

    __slots__ = ("_context", "_entry", "_error", "_value")

    def __init__(self, context: RankContext, entry: Entry, value: T | None, error: Exception | None) -> None:
        self._context, self._entry, self._value, self._error = context, entry, value, error

    def __await__(self) -> Generator[Any, Any, T]:
        journal, entry = self._context.journal, self._entry
        journal.wait_begins(entry)
        assert entry.end is not None, "a lane marks the end of every kernel"
        entry.lane.wait_for(entry.end, self._value)
        journal.wait_ends(entry, has_waited=not isinstance(entry.end, int))
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
        yield  # pragma: no cover - makes this a generator

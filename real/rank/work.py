"""What the verbs of a real rank return; what they wait for is left to the lanes and the clerks."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from real.rank import libraries as wires
from real.rank.context import Seat
from real.rank.journal import Entry
from real.rank.lanes import Pending
from scenarios.seam.errors import CollectiveError

T = TypeVar("T")


class TorchWork(Generic[T]):
    """A collective that was issued."""

    __slots__ = ("_entry", "_pending", "_result", "_seat")

    def __init__(self, seat: Seat, entry: Entry, pending: Pending, result: T) -> None:
        self._seat, self._entry, self._pending, self._result = seat, entry, pending, result

    def __await__(self) -> Generator[Any, Any, T]:
        entry, journal = self._entry, self._seat.journal
        was_over = self._pending.is_over()
        journal.wait_begins(entry)
        try:
            self._pending.wait()
        except RuntimeError as error:
            raise wires.failed(self._seat.rank, entry.describe(), error) from error
        except CollectiveError:
            entry.end = entry.lane.mark()
            raise
        finally:
            journal.wait_ends(entry, has_waited=not was_over)
        return self._result
        yield  # pragma: no cover - makes this a generator


class Computed(Generic[T]):
    """A kernel that was launched (on a CPU: that has run)."""

    __slots__ = ("_entry", "_error", "_seat", "_value")

    def __init__(self, seat: Seat, entry: Entry, value: T | None, error: Exception | None) -> None:
        self._seat, self._entry, self._value, self._error = seat, entry, value, error

    def __await__(self) -> Generator[Any, Any, T]:
        journal, entry = self._seat.journal, self._entry
        journal.wait_begins(entry)
        assert entry.end is not None, "a lane marks the end of every kernel"
        entry.lane.wait_for(entry.end, self._value)
        journal.wait_ends(entry, has_waited=not isinstance(entry.end, int))
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
        yield  # pragma: no cover - makes this a generator


class Nothing:
    """What a rank gets that is not in the group."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, Any]:
        return None
        yield  # pragma: no cover - makes this a generator

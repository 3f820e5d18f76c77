"""Stores in which a script's ranks rendezvous (TCPStore, FileStore), on the simulator's side; no torch."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from scenarios.workloads.recording.events.calls import MetInStore
from scenarios.workloads.recording.events.event import Counts, RankEvent, Request

if TYPE_CHECKING:
    from scenarios.seam.backend import Backend, Work
    from scenarios.seam.group import Group
    from scenarios.seam.rank import Rank

# The key under which TCPStore counts the ranks that have joined.
JOINED = "init/"
# How many times a rank may get the same answer to one request, with only store requests between, before it is blocked.
MOST_POLLS = 100


@dataclass(frozen=True, slots=True)
class AskStore(Request):
    """A request to a store: its name, the verb with its keys and values, and the script's line (`place`).

    It is answered once other ranks have set what it waits for.
    """

    store: str
    verb: str
    arguments: Sequence[Any]
    place: str

    def __str__(self) -> str:
        key = f" of {self.arguments[0]!r}" if self.arguments else ""
        return " ".join(filter(None, [self.place, f"{self.verb}{key}"]))

    def as_line(self, counts: Counts) -> RankEvent:
        return MetInStore()


class PendingWork(Protocol):
    """A work that a rank awaits and another rank finishes."""

    def __await__(self) -> Generator[Any, Any, Any]: ...

    def finish(self, value: object = None) -> None:
        """Finish the work, and hand `value` to the waiting rank."""
        ...


class Meeting(Protocol):
    """A backend, the simulator's: its ranks also wait for each other outside of calls, let simulated time pass, use
    several libraries, and open streams that other ranks lack.
    """

    def over(self, group: Group, library: str) -> Group:
        """Return a group of the same members whose calls another library carries out."""
        ...

    def pend(self, label: str) -> PendingWork:
        """Return a work that another rank finishes."""
        ...

    def open_own_stream(self, name: str) -> Backend:
        """Return this rank on a new stream; no call uses the stream's own groups."""
        ...

    def sleep(self, until_ns: int) -> Work[Any]:
        """Return a work that ends at that time."""
        ...

    async def let_others(self) -> None:
        """Suspend until all other simulated events of the same instant have happened."""
        ...


# Returned by `Stores.answer` where there is no answer yet.
WAITS = object()


class Stores:
    """All stores of a run, each created by its first request. Store requests take no simulated time."""

    def __init__(self) -> None:
        self._of = defaultdict[str, _Store](_Store)
        self._waiting: list[tuple[AskStore, PendingWork, int]] = []  # with the store's change count when last tried
        self._polls = defaultdict[int, Counter[str]](Counter)  # by rank: how often each (request, answer) repeated

    async def meet(self, rank: Rank, request: AskStore) -> Any:
        """Return the answer to a rank's request; block its host until there is an answer.

        A polling rank is blocked until the store changes: on CPUs only one rank's process runs at a time.
        """
        store = self._of[request.store]
        before = store.changes
        found = self.answer(request)
        if found is WAITS or self.is_polling(rank.rank, request, found, has_changed=store.changes != before):
            pending = cast(Meeting, rank.backend).pend(str(request))
            self._waiting.append((request, pending, store.changes))
            found = await rank.synchronize(pending)
            self.goes_on(rank.rank)
        elif store.changes != before:
            self._wake()
        return found

    def is_polling(self, rank: int, request: AskStore, found: object, *, has_changed: bool) -> bool:
        """Return whether a rank polls a store: it got the same answer to the same request `MOST_POLLS` times, and only
        asked stores in between.
        """
        if has_changed:
            self.goes_on(rank)
            return False
        polls, key = self._polls[rank], repr((request, found))
        polls[key] += 1
        return polls[key] >= MOST_POLLS

    def goes_on(self, rank: int) -> None:
        """Reset the count of a rank's polls: the rank did something else."""
        self._polls[rank].clear()

    def changes(self, request: AskStore) -> int:
        """Return how many times the request's store has changed."""
        return self._of[request.store].changes

    def answer(self, request: AskStore) -> Any:
        """Return the answer, or `WAITS` if other ranks have to act first."""
        try:
            return getattr(self._of[request.store], request.verb)(*request.arguments)
        except _WaitsError:
            return WAITS

    def _wake(self) -> None:
        """Answer the waiting requests that can be answered now, in order of arrival, until no further one can."""
        before = 0
        while before != len(self._waiting):
            waiting, self._waiting = self._waiting, []
            before = len(waiting)
            for request, pending, changes in waiting:
                # A polling rank has an answer, but the same as before: it is woken by a change only.
                is_same = self._of[request.store].changes == changes
                found = WAITS if is_same else self.answer(request)
                if found is WAITS:
                    self._waiting.append((request, pending, changes))
                else:
                    pending.finish(found)


class _WaitsError(Exception):
    """A request that cannot be answered yet."""


class _Store:
    """A store, with torch's verbs as methods.

    Attributes:
        changes: how many times its keys or values have changed.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._values: dict[str, bytes] = {}
        self._queues = defaultdict[str, deque[bytes]](deque)

    def set(self, key: str, value: str | bytes) -> None:
        self._values[key] = _bytes(value)
        self.changes += 1

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        found = int(self._values.get(key, b"0")) + int(amount)
        # Adding 0 reads a counter, which must not count as a change: polling would never be seen.
        if amount or key not in self._values:
            self.set(key, str(found).encode())
        return found

    def append(self, key: str, value: str | bytes) -> None:
        self.set(key, self._values.get(key, b"") + _bytes(value))

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set a key if its value is `expected`, or if it has none and `expected` is empty; return torch's answer."""
        found = self._values.get(key)
        if found == _bytes(expected) or (found is None and not expected):
            self.set(key, desired)
            return _bytes(desired)
        return _bytes(expected) if found is None else found

    def delete_key(self, key: str) -> bool:
        is_there = self._values.pop(key, None) is not None
        self.changes += is_there
        return is_there

    def num_keys(self) -> int:
        return len(self._values)

    def list_keys(self) -> list[str]:
        return list(self._values)

    def wait(self, keys: Sequence[str]) -> None:
        if not self.check(keys):
            raise _WaitsError

    def joined(self, count: int) -> None:
        """Require that `count` ranks have joined."""
        if int(self._values.get(JOINED, b"0")) < count:
            raise _WaitsError

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._queues[key].append(_bytes(value))
        self.changes += 1

    def queue_pop(self, key: str, is_waiting: bool) -> bytes | None:
        """Remove and return a queue's first value; for an empty queue, wait or return None."""
        if not self._queues[key]:
            if is_waiting:
                raise _WaitsError
            return None
        self.changes += 1
        return self._queues[key].popleft()

    def queue_len(self, key: str) -> int:
        return len(self._queues[key])


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)

"""Stores in which the ranks of a script meet (TCPStore, FileStore, rendezvous) as the simulator has them; no torch."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from scenarios.seam.group import Group
    from scenarios.seam.rank import Rank

# Where TCPStore counts those that have come, which is one of its keys.
JOINED = "init/"
# How often a rank may get one answer to one request, and do nothing but ask stores meanwhile, before it waits.
MOST_POLLS = 100


class StoreRequest(NamedTuple):
    """A request to a store, by the store's name: what to do with which keys or values, and the script's line."""

    store: str
    verb: str
    arguments: Sequence[Any]
    line: str

    def __str__(self) -> str:
        key = f" of {self.arguments[0]!r}" if self.arguments else ""
        return " ".join(filter(None, [self.line, f"{self.verb}{key}"]))


class PendingWork(Protocol):
    """A work for which a rank waits until another one finishes it."""

    def __await__(self) -> Generator[Any, Any, Any]: ...

    def finish(self, value: object = None) -> None:
        """End it, with what the rank that waits is given."""
        ...


class Meeting(Protocol):
    """A backend whose ranks also wait for each other outside of calls, and have several libraries: the simulator's."""

    def over(self, group: Group, library: str) -> Group:
        """Return a group's members as a group whose calls another library carries."""
        ...

    def pend(self, label: str) -> PendingWork:
        """Return a work that another rank finishes."""
        ...

    async def let_others(self) -> None:
        """Suspend until all else that happens at this instant has happened."""
        ...


# What `Stores.answer` gives where there is no answer yet.
WAITS = object()


class Stores:
    """All stores of a run, each made by the first request to it. Meeting in a store takes no simulated time."""

    def __init__(self) -> None:
        self._of = defaultdict[str, _Store](_Store)
        self._waiting: list[tuple[StoreRequest, PendingWork, int]] = []  # each with its store's changes so far
        self._polls = defaultdict[int, Counter[str]](Counter)  # by rank: requests with their answers

    async def meet(self, rank: Rank, request: StoreRequest) -> Any:
        """Return the answer to a rank's request, for which its host may have to wait.

        A rank that polls waits for a change of the store: on CPUs only one rank's process runs at a time.
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

    def is_polling(self, rank: int, request: StoreRequest, found: object, *, has_changed: bool) -> bool:
        """Return whether a rank has heard this answer `MOST_POLLS` times and done nothing but ask stores meanwhile."""
        if has_changed:
            self.goes_on(rank)
            return False
        polls, key = self._polls[rank], repr((request, found))
        polls[key] += 1
        return polls[key] >= MOST_POLLS

    def goes_on(self, rank: int) -> None:
        """Forget what a rank has asked, as it does something else."""
        self._polls[rank].clear()

    def changes(self, request: StoreRequest) -> int:
        """Return how often the store of a request has changed."""
        return self._of[request.store].changes

    def answer(self, request: StoreRequest) -> Any:
        """Return the answer; `WAITS` where other ranks have to do something before."""
        try:
            return getattr(self._of[request.store], request.verb)(*request.arguments)
        except _WaitsError:
            return WAITS

    def _wake(self) -> None:
        """Answer those that wait and now can go on, in the order of their coming."""
        before = 0
        while before != len(self._waiting):
            waiting, self._waiting = self._waiting, []
            before = len(waiting)
            for request, pending, changes in waiting:
                is_same = self._of[request.store].changes == changes
                found = WAITS if is_same else self.answer(request)
                if found is WAITS:
                    self._waiting.append((request, pending, changes))
                else:
                    pending.finish(found)


class _WaitsError(Exception):
    """A request that has no answer yet."""


class _Store:
    """One store, in the verbs of torch's.

    Attributes:
        changes: how often its keys or values have changed.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._values: dict[str, bytes] = {}
        self._queues = defaultdict[str, deque[bytes]](deque)

    def set(self, key: str, value: bytes) -> None:
        self._values[key] = value
        self.changes += 1

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        found = int(self._values.get(key, b"0")) + amount
        if amount or key not in self._values:
            self.set(key, str(found).encode())
        return found

    def append(self, key: str, value: bytes) -> None:
        self.set(key, self._values.get(key, b"") + value)

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Set the value if it is the expected one, or if there is none and none is expected; return what is there."""
        found = self._values.get(key)
        if found == expected or (found is None and not expected):
            self.set(key, desired)
            return desired
        return expected if found is None else found

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
        """Wait until `count` ranks have come."""
        if int(self._values.get(JOINED, b"0")) < count:
            raise _WaitsError

    def queue_push(self, key: str, value: bytes) -> None:
        self._queues[key].append(value)
        self.changes += 1

    def queue_pop(self, key: str, is_waiting: bool) -> bytes | None:
        """Take a queue's first value; without one wait for it, or return None."""
        if not self._queues[key]:
            if is_waiting:
                raise _WaitsError
            return None
        self.changes += 1
        return self._queues[key].popleft()

    def queue_len(self, key: str) -> int:
        return len(self._queues[key])

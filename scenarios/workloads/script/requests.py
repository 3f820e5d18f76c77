"""The connection of a script's process to its simulated rank: sends one request (`events`) at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from threading import RLock
from typing import Any, NamedTuple, Protocol

from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup

from scenarios.during import during
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.work import Turn


class ScriptLink(Protocol):
    """A script's connection to the simulator, or to the recorder of a real rank."""

    def ask(self, request: Request) -> Any:
        """Send a request: a new group, a plan, the end of a step or of the script, a metric (a tensor), a failure.

        Returns:
            The name of a new group. Of a step behind which only the ends of steps are wanted, a function to call at
            each, which returns whether it was the last one.
        """
        ...

    def begin(self) -> None:
        """Announce that the group of all ranks is about to be created."""
        ...

    def store(self) -> Store:
        """Return a store in which all ranks of the script rendezvous."""
        ...

    def values_of(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values, None if they are unknown; values of a simulated GPU need no wait."""
        ...

    def join(self, options: Any, backends: Mapping[str, str]) -> ProcessGroup:
        """Create this rank's side of a group; see `ScriptGroup`."""
        ...


class Refused(NamedTuple):
    """An answer to a call with wrong arguments, which raises in the script as torch would."""

    kind: str
    sentence: str

    @staticmethod
    def of(error: Exception) -> Refused:
        """Return the refusal for an exception; kinds other than TypeError and ValueError become RuntimeError."""
        kind = type(error).__name__ if isinstance(error, TypeError | ValueError) else RuntimeError.__name__
        return Refused(kind, str(error))

    @property
    def error(self) -> Exception:
        """The exception, without the rank's name, which error reports add."""
        kinds = {each.__name__: each for each in (TypeError, ValueError)}
        return kinds.get(self.kind, RuntimeError)(_OF_RANK.sub("", self.sentence))


_OF_RANK = re.compile(r"^rank \d+: ")
# How many answers that are not awaited may be pending for a process.
_MOST_AHEAD = 16
_LOOKING_S = 0.01


class Asking:
    """A rank's end of its connection to the simulator; calls `heard(now_ns)` with the simulated time of each answer.

    In a process that the script forks, the copy of this object receives nothing.
    """

    def __init__(self, connection: Connection, heard: Callable[[int | None], None]) -> None:
        self._connection, self._heard, self._process = connection, heard, os.getpid()
        self.behind = 1  # pending answers; the first one tells that all ranks have started
        self._is_talking = False

    def ask(self, turn: Turn, *, is_on_gpu: bool) -> Any:
        """Send a turn and return the answer; None if the request is not awaited."""
        is_ahead = is_on_gpu and not turn.request.is_awaited
        with during(self, _is_talking=True):
            self._connection.send(turn)
            self.behind += 1
            return self._receive(until=_MOST_AHEAD if is_ahead else 0)

    def receive(self) -> None:
        """Receive all pending answers; do nothing while this thread sends or receives.

        A signal handler or finalizer of the script may call this in the middle of a request, and would wait forever.
        """
        if not self._is_talking:
            with during(self, _is_talking=True):
                self._receive(until=0)

    def _receive(self, until: int) -> Any:
        """Receive answers until only `until` are pending; return the last one received, or None."""
        answer = None
        while self.behind > until:
            given = self._connection.recv_bytes()
            self.behind -= 1  # before unpickling, which may fail
            answer, now_ns = ForkingPickler.loads(given)
            self._heard(now_ns)
        return answer

    def catch_up(self, lock: RLock) -> None:
        """Receive all pending answers, but not in a forked process or while another thread sends or receives."""
        if not self.behind or os.getpid() != self._process:
            return
        while not lock.acquire(timeout=_LOOKING_S):  # a thread that launches a kernel holds it for some microseconds
            if self._is_talking:
                return
        try:
            self.receive()
        finally:
            lock.release()

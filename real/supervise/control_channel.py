"""ControlChannel: a rank's connection to the supervisor, which reports its position and closes when its process ends.

Messages are JSON, one per line. A rank says: {"hello": rank, "token": ...} first, {"step": index}, {"at": position} or,
where that is as it was, {"here": true}, {"failed": sentence, "step": index}, {"lost": sentence, "step": index},
{"ping": n}, {"bye": true}. The supervisor says: {"pong": n, "ns": clock}, {"stop": sentence}.
"""

from __future__ import annotations

import json
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from real.rank.journal import Entry, Journal
from real.rank.lanes import ROUND_TRIPS, RoundTrip, Sight, now_ns, sight
from real.supervise.rank_status import ENDED, READY

# How old the step may be that the supervisor knows of; each message takes some 50 us of a core.
STEP_S = 0.01

# Where a rank waits for all others.
_EVERYONE_AT = {READY: "the start of the run", ENDED: "the end of the run"}


class ControlChannel:
    """Open until `close`; a thread listens, and reports the rank's position at intervals.

    `step` is the step that the rank is in: setting it takes no system call. The thread reports it if `tells_steps`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        rank: int,
        token: str,
        *,
        timeout_s: float,
        on_stop: Callable[[str], None],
        on_cut: Callable[[], None],
        tells_steps: bool = True,
    ) -> None:
        """`on_stop` and `on_cut` are called on the listening thread: the run is over, or the supervisor is gone.

        `tells_steps` is False where the supervisor reads the steps of this rank from shared memory.
        """
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)
        self._lock = threading.Lock()
        self._on_stop, self._on_cut = on_stop, on_cut
        self._pongs: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._every_s = min(1.0, timeout_s / 10)
        self._timeout_s = timeout_s
        self._tells_steps = tells_steps
        self._is_closing = False
        self.journal: Journal | None = None
        self.step: int | None = None
        self.say({"hello": rank, "token": token})
        threading.Thread(target=self._listen, name="control channel", daemon=True).start()

    def say(self, message: dict[str, Any]) -> None:
        """Send a message; the listener notices a supervisor that is gone."""
        data = json.dumps(message).encode() + b"\n"
        with suppress(OSError), self._lock:
            self._socket.sendall(data)

    def look(self) -> Sight:
        """The offset of the supervisor's clock from this rank's.

        Raises:
            TimeoutError: the supervisor did not answer.
        """
        return sight([self._round_trip(number) for number in range(ROUND_TRIPS)])

    def close(self) -> None:
        """Report that the rank is done; the supervisor then closes the connection, and the listener ends."""
        self._is_closing = True
        self.say({"bye": True})
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _round_trip(self, number: int) -> RoundTrip:
        asked = now_ns()
        self.say({"ping": number})
        try:
            there, answered = self._pongs.get(timeout=self._timeout_s)
        except queue.Empty:
            raise TimeoutError("the supervisor did not answer") from None
        return RoundTrip(asked_ns=asked, there_ns=there, answered_ns=answered)

    def _listen(self) -> None:
        try:
            for message in self._messages():
                if "pong" in message:
                    self._pongs.put((message["ns"], now_ns()))
                elif "stop" in message:
                    self._is_closing = True
                    self._on_stop(message["stop"])
                    return
        except (OSError, ValueError):
            pass  # a connection that breaks counts as closed
        finally:
            self._socket.close()
        if not self._is_closing:
            self._on_cut()

    def _messages(self) -> Iterator[dict[str, Any]]:
        buffer = b""
        told, told_step, told_s = -1, None, time.monotonic()
        tick_s = min(STEP_S, self._every_s) if self._tells_steps else self._every_s
        while True:
            readable, _, _ = select.select([self._socket], [], [], tick_s)
            if self._tells_steps:
                told_step = self._tell_step(told_step)
            if time.monotonic() - told_s >= self._every_s:
                told, told_s = self._tell_position(told), time.monotonic()
            if not readable:
                continue
            data = self._socket.recv(1 << 16)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            yield from map(json.loads, lines)

    def _tell_step(self, told: int | None) -> int | None:
        """Report the rank's step if it has changed."""
        step = self.step
        if step != told:
            self.say({"step": step})
        return step

    def _tell_position(self, told: int) -> int:
        """Report the rank's position if it has changed, or what it waits for; else only that this process runs."""
        journal = self.journal
        if journal is None:
            return told
        at = {"step": self.step, **position(journal)}
        key = hash((at["step"], at["stage"], at["moves"], at["inside"], len(at["waits"])))
        self.say({"at": at} if key != told else {"here": True})
        return key


def position(journal: Journal) -> dict[str, Any]:
    """A rank's position as `rank_status.Position` has it; read while the rank goes on, so it may mix two moments."""
    if journal.elsewhere is not None:
        return journal.elsewhere
    queued = journal.queued()
    if queued:
        return _position_on_device(journal, queued)
    last = journal.last
    waits = [_waits(entry) for entry in list(journal.waiting)]
    if journal.stage in _EVERYONE_AT:
        waits = [(_EVERYONE_AT[journal.stage], "", -1, list(journal.others))]
    return {
        "stage": journal.stage,
        # Gathering, merging and writing take their time: that the thread runs which calls this is progress.
        "moves": now_ns() if journal.stage == ENDED else journal.moves,
        "reached": dict(journal.reached),
        "last": last.describe() if last else "",
        "inside": last is not None and last.end is None,
        "waits": [wait for wait in waits if wait is not None],
    }


def _position_on_device(journal: Journal, queued: list[Entry]) -> dict[str, Any]:
    """A CUDA rank's position from the events that its device has passed, as the host runs ahead.

    The rank is inside the calls that have begun and not ended, and has not reached those that have not begun. If a
    kernel runs, that is what the rank is reported to do: it is what others wait for.
    """
    begun: list[Entry] = []
    reached = dict(journal.reached)
    for entry in queued:
        if entry.lane.is_past(entry.start):
            begun.append(entry)
        elif entry.call is not None and entry.index >= 0:
            reached[entry.call.group.name] = min(entry.index, reached[entry.call.group.name])
    doing = sorted(begun, key=lambda entry: entry.call is not None)
    return {
        "stage": journal.stage,
        "moves": 2 * journal.moves - len(queued),  # more with each that is issued, and with each that ends
        "reached": reached,
        "last": doing[0].describe() if doing else "",
        "inside": bool(doing),
        "waits": [wait for wait in map(_waits, begun) if wait is not None],
    }


def _waits(entry: Entry) -> tuple[str, str, int, list[int]] | None:
    call = entry.call
    if call is None:
        return None
    ranks = [call.group.ranks[call.root]] if entry.index < 0 else list(call.group.ranks)
    return entry.describe(), call.group.name, entry.index, ranks

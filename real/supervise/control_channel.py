"""A rank's line to the warden: one connection that tells where the rank is, and that closes when its process ends.

Messages are JSON, one a line. A rank says: {"hello": rank, "token": ...} first, {"step": index}, {"at": position},
{"failed": sentence, "step": index}, {"lost": sentence, "step": index}, {"ping": n}, {"bye": true}. The warden says:
{"pong": n, "ns": clock}, {"stop": sentence}. Judging is left to `roll`, hearing to `warden`.
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

# How old the step may be that the warden knows of; each telling takes some 50 us of a core.
STEP_S = 0.01


class Line:
    """Open until `close`; a thread listens, and tells the warden now and then where the rank is.

    `step` is the step that the rank is in: to set it takes no system call. The thread tells it, if it `tells_steps`.
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
        """`on_stop` and `on_cut` are called on the listening thread: the run is over, or the warden is gone.

        `tells_steps` is False where the warden can see the steps of this rank by itself.
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
        threading.Thread(target=self._listen, name="line", daemon=True).start()

    def say(self, message: dict[str, Any]) -> None:
        """Send it; a warden that is gone is noticed by the listener."""
        data = json.dumps(message).encode() + b"\n"
        with suppress(OSError), self._lock:
            self._socket.sendall(data)

    def look(self) -> Sight:
        """Where the warden's clock stands against ours.

        Raises:
            TimeoutError: the warden did not answer.
        """
        return sight([self._round_trip(number) for number in range(ROUND_TRIPS)])

    def close(self) -> None:
        """The rank is done. The warden hangs up, and then the listener ends."""
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
            raise TimeoutError("the warden did not answer") from None
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
            pass  # a line that breaks is cut
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
        """Say which step the rank is in if that is news."""
        step = self.step
        if step != told:
            self.say({"step": step})
        return step

    def _tell_position(self, told: int) -> int:
        """Say where the rank is if that is news; twice, as the wait that follows a move is no move."""
        journal = self.journal
        if journal is None:
            return told
        at = position(journal)
        key = hash((at["moves"], at["inside"], len(at["waits"])))
        if key != told:
            self.say({"at": at})
        return key


def position(journal: Journal) -> dict[str, Any]:
    """Where a rank is, for `roll.Position`; read while the rank goes on, so it may mix two moments."""
    queued = journal.queued()
    if queued:
        return _position_on_device(journal, queued)
    last = journal.last
    waits = [_waits(entry) for entry in list(journal.waiting)]
    if journal.has_ended:
        waits = [("the end of the run", "", -1, list(journal.others))]
    return {
        "moves": journal.moves,
        "reached": dict(journal.reached),
        "last": last.describe() if last else "",
        "inside": last is not None and last.end is None,
        "waits": [wait for wait in waits if wait is not None],
    }


def _position_on_device(journal: Journal, queued: list[Entry]) -> dict[str, Any]:
    """The host runs ahead, so where a rank is follows from the events that its device has passed.

    It stands in the calls that it has begun and not ended, and has not reached those that it has not begun. What it
    is said to do is a kernel, if it has begun one: that is what others wait for.
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

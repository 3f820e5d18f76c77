"""A rank's connection to the supervisor, which reports the rank's position and closes when its process ends.

Messages are JSON, one per line. A rank sends {"hello": rank, "token": ...} first, then {"step": index}, {"at":
position} or, if the position is unchanged, {"here": true}, {"failed": sentence, "step": index}, {"lost": sentence,
"step": index}, {"ping": n}, {"bye": true}. The supervisor sends {"pong": n, "ns": clock}, {"stop": sentence}.
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

# The greatest age of the step that the supervisor knows of; each message takes some 50 us of a core.
STEP_S = 0.01

# Stages at which a rank waits for all others.
_EVERYONE_AT = {READY: "the start of the run", ENDED: "the end of the run"}


class ControlChannel:
    """A connection that is open until `close`; a thread listens, and reports the rank's position at intervals.

    `step` is the rank's current step: setting it takes no system call. The thread reports the step if `tells_steps`.
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
        """Connect to the supervisor at `address` and start the listening thread.

        Args:
            rank: this rank.
            token: the run's secret.
            timeout_s: of the connection and of clock probes, in s.
            on_stop: called on the listening thread with a sentence when the run is over.
            on_cut: called on the listening thread when the supervisor is gone.
            tells_steps: False where the supervisor reads this rank's steps from shared memory.
        """
        self._socket = socket.create_connection(address, timeout=timeout_s)
        # Nagle's algorithm would delay small messages, and with them the clock probes.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The time-out was for connecting: a supervisor may say nothing for as long as the run lasts.
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
        """Send a message to the supervisor; ignore that it is gone, which the listener thread notices."""
        data = json.dumps(message).encode() + b"\n"
        # The rank's threads and the listener send concurrently; the lock keeps messages whole.
        with suppress(OSError), self._lock:
            self._socket.sendall(data)

    def look(self) -> Sight:
        """Measure the offset of the supervisor's clock from this rank's.

        Raises:
            TimeoutError: the supervisor did not answer.
        """
        return sight([self._round_trip(number) for number in range(ROUND_TRIPS)])

    def close(self) -> None:
        """Report that the rank is done; the supervisor then closes the connection, and the listener ends."""
        self._is_closing = True
        self.say({"bye": True})
        with suppress(OSError):
            # Only the writing side: the listener reads on until the supervisor closes its side.
            self._socket.shutdown(socket.SHUT_WR)

    def _round_trip(self, number: int) -> RoundTrip:
        sent_ns = now_ns()
        self.say({"ping": number})
        try:
            there_ns, answered_ns = self._pongs.get(timeout=self._timeout_s)
        except queue.Empty:
            raise TimeoutError("the supervisor did not answer") from None
        return RoundTrip(asked_ns=sent_ns, there_ns=there_ns, answered_ns=answered_ns)

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
        reported, reported_step, reported_s = -1, None, time.monotonic()
        tick_s = min(STEP_S, self._every_s) if self._tells_steps else self._every_s
        while True:
            readable, _, _ = select.select([self._socket], [], [], tick_s)
            if self._tells_steps:
                reported_step = self._report_step(reported_step)
            if time.monotonic() - reported_s >= self._every_s:
                reported, reported_s = self._report_position(reported), time.monotonic()
            if not readable:
                continue
            data = self._socket.recv(1 << 16)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            yield from map(json.loads, lines)

    def _report_step(self, reported: int | None) -> int | None:
        """Report the rank's step if it has changed."""
        step = self.step
        if step != reported:
            self.say({"step": step})
        return step

    def _report_position(self, reported: int) -> int:
        """Report the rank's position if it or its waits have changed; else only that this process runs."""
        journal = self.journal
        if journal is None:
            return reported
        at = {"step": self.step, **position(journal)}
        key = hash((at["step"], at["stage"], at["moves"], at["inside"], len(at["waits"])))
        self.say({"at": at} if key != reported else {"here": True})
        return key


def position(journal: Journal) -> dict[str, Any]:
    """Return a rank's position as in `rank_status.Position`, read without a lock: it may mix two moments."""
    if journal.elsewhere is not None:
        return journal.elsewhere
    queued = journal.queued_entries()
    if queued:
        return _position_on_device(journal, queued)
    last = journal.last
    waits = [_waits(entry) for entry in list(journal.waiting)]
    if journal.stage in _EVERYONE_AT:
        waits = [(_EVERYONE_AT[journal.stage], "", -1, list(journal.others))]
    return {
        "stage": journal.stage,
        # Gathering, merging and writing take time: that the calling thread runs counts as progress.
        "moves": now_ns() if journal.stage == ENDED else journal.moves,
        "reached": dict(journal.reached),
        "last": last.describe() if last else "",
        "inside": last is not None and last.end is None,
        "waits": [wait for wait in waits if wait is not None],
    }


def _position_on_device(journal: Journal, queued: list[Entry]) -> dict[str, Any]:
    """Return a CUDA rank's position from the events that its device has passed, as the host runs ahead.

    The rank is inside the calls that have begun and not ended, and has not reached the calls that have not begun. A
    running kernel is reported before any call, because other ranks wait for the kernel.
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
        "moves": 2 * journal.moves - len(queued),  # grows with each issue and with each end
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

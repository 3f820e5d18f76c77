"""A supervisor: receives all ranks' control messages for the rank status table, and answers clock probes."""

from __future__ import annotations

import json
import selectors
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from real.rank.lanes import now_ns
from real.supervise.rank_status import RankStatusTable

_LARGEST_BYTES = 1 << 20  # no message comes near; a peer that sends more is no rank of this run


@dataclass(slots=True)
class _Caller:
    socket: socket.socket
    rank: int | None = None
    buffer: bytes = b""


class Supervisor:
    """A server of control channels, which listens until `close`."""

    def __init__(self, host: str, table: RankStatusTable, token: str) -> None:
        self._table, self._token = table, token
        self._listener = socket.create_server((host, 0), backlog=1024)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to which control channels connect."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def hear(self, now_s: float, for_s: float) -> None:
        """Receive and handle messages of ranks; wait for them at most `for_s` seconds."""
        for key, _ in self._selector.select(for_s):
            if key.data is None:
                self._accept()
            else:
                self._read(key.data, now_s)

    def stop(self, sentence: str) -> None:
        """Tell every rank to stop, and why."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._answer(key.data, {"stop": sentence})

    def close(self) -> None:
        """Close all connections, and the listener."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _accept(self) -> None:
        with suppress(OSError):
            # The caller may have gone again before it was accepted.
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A rank that does not read must not block the supervision of the others for long.
            connection.settimeout(1.0)
            self._selector.register(connection, selectors.EVENT_READ, _Caller(connection))

    def _read(self, caller: _Caller, now_s: float) -> None:
        try:
            data = caller.socket.recv(1 << 16)
        except OSError:
            data = b""
        *lines, caller.buffer = (caller.buffer + data).split(b"\n")
        try:
            for line in lines:
                self._take(caller, json.loads(line), now_s)
        except (ValueError, KeyError, TypeError):
            data = b""  # not a rank of this run
        if not data or len(caller.buffer) > _LARGEST_BYTES:
            self._hang_up(caller, now_s)

    def _take(self, caller: _Caller, message: dict[str, Any], now_s: float) -> None:
        if caller.rank is None:
            # Any process can connect to the port: only those of this run know its token.
            if message["token"] != self._token or not 0 <= message["hello"] < self._table.size:
                raise ValueError("not a rank of this run")
            caller.rank = message["hello"]
            self._table.came(caller.rank, now_s)
        elif "ping" in message:
            self._answer(caller, {"pong": message["ping"], "ns": now_ns()})
        else:
            self._table.hear(caller.rank, message, now_s)

    def _answer(self, caller: _Caller, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the loss of a rank shows as its closed connection
            caller.socket.sendall(json.dumps(message).encode() + b"\n")

    def _hang_up(self, caller: _Caller, now_s: float) -> None:
        self._selector.unregister(caller.socket)
        caller.socket.close()
        if caller.rank is not None:
            self._table.was_cut(caller.rank, now_s)

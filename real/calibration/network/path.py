"""Times the path between two ranks without gloo and without sleeping threads: round trips of a word, both ends
spinning.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from statistics import median

_SIOCGIFADDR = 0x8915  # netdevice(7)
_WORD = b"word"
_ROUND_TRIPS = 300
_TIMEOUT_S = 10.0


class PathEnd:
    """An end of a TCP connection between two ranks; the leader's end listens first."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._socket: socket.socket | None = None

    def listen(self) -> tuple[str, int]:
        """Listen on the interface that gloo would use; return the address for the other end."""
        self._listener = socket.create_server((own_address(), 0))
        self._listener.settimeout(_TIMEOUT_S)
        host, port = self._listener.getsockname()
        return host, port

    def meet(self, address: tuple[str, int]) -> None:
        """Connect, or accept the other end's connection.

        Raises:
            OSError: the two cannot reach each other.
        """
        if self._listener is not None:
            self._socket, _ = self._listener.accept()
            self._listener.close()
        else:
            self._socket = socket.create_connection(address, timeout=_TIMEOUT_S)
        # Nagle's algorithm would hold a word back until the one before it is acknowledged.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close this end's connection."""
        if self._socket is not None:
            self._socket.close()

    def one_way_s(self, *, leads: bool) -> float:
        """Return half of the median round trip, in seconds; both ends call this at the same time."""
        times_s = []
        for _ in range(_ROUND_TRIPS):
            begin_s = time.perf_counter()
            if leads:
                self._say()
            self._hear()
            if not leads:
                self._say()
            times_s.append(time.perf_counter() - begin_s)
        # The median: a few round trips are interrupted by the system for much longer than they take.
        return median(times_s) / 2

    def _say(self) -> None:
        assert self._socket is not None, "they have met"
        self._socket.send(_WORD)

    def _hear(self) -> None:
        assert self._socket is not None, "they have met"
        received, until_s = 0, time.monotonic() + _TIMEOUT_S
        # The socket does not block: a sleeping receiver would add its wake-up.
        while received < len(_WORD):
            try:
                received += len(self._socket.recv(len(_WORD) - received))
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise TimeoutError("the other end of the path does not answer") from None


def own_address() -> str:
    """Return the address of the interface that GLOO_SOCKET_IFNAME names, else of this host's name, as gloo does."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if not name:
        return socket.gethostbyname(socket.gethostname())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])

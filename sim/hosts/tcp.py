"""Models TCP between hosts by segment: queues in front of links, socket buffers, and the CPU time of both ends.

Fair shares (`sharing`) give the rate of long transfers. A short message waits for the queue in front of it: segments of
its own connection, and of others that leave by its port or arrive at it. So here every link has one first-in-first-out
queue, and every connection puts a limited number of bytes into it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from scenarios.do_nothing import do_nothing
from sim.engine.capacity import Capacity
from sim.engine.machine import PACKET_BYTES, Machine
from sim.engine.network import Path
from sim.hosts.cores import HostCores, Thread

# Size of simulated segments, close to those that Linux passes to a device (tcp(7), segmentation offload).
SEGMENT_BYTES = 16 * 1024
# Bytes of a long message that a thread writes before the first byte leaves: several segments, for fewer events.
_PIECE_BYTES = 4 * SEGMENT_BYTES


class Port:
    """The queue in front of one direction of a link, with a token bucket: `burst` passes at once after a pause."""

    __slots__ = ("_capacity", "_last_ns", "_owed_ns", "_whole_per_ns")

    def __init__(self, capacity: Capacity) -> None:
        self._capacity, self._whole_per_ns = capacity, capacity.whole_per_s / 1e9
        # `_owed_ns`: when the link at its rate has served all bytes, also those that a burst let pass earlier.
        self._owed_ns = self._last_ns = 0.0

    def pass_through(self, size_bytes: float, now_ns: int, whole_ns: int) -> tuple[int, int]:
        """Return when the first packet and the last byte have left, behind all earlier bytes.

        The first packet is here now, the last byte at `whole_ns`.
        """
        # For the link's statistics alone: this queue decides the time, not fair shares.
        self._capacity.pass_by(size_bytes, now_ns)
        # Before `load` adds this segment: it begins behind earlier bytes, not behind itself.
        begin_ns = max(now_ns, self._last_ns)
        self.load(size_bytes, now_ns)
        packet_ns = min(size_bytes, PACKET_BYTES) / self._capacity.per_ns
        self._last_ns = max(begin_ns, whole_ns, self._owed_ns - self._capacity.burst / self._capacity.per_ns)
        return round(min(begin_ns + packet_ns, self._last_ns)), round(self._last_ns)

    def load(self, size_bytes: float, now_ns: int) -> None:
        """Add bytes that delay only later ones, such as acknowledgements."""
        begin_ns = max(self._owed_ns, now_ns)
        self._owed_ns = begin_ns + self._capacity.pace.takes_ns(size_bytes / self._whole_per_ns, begin_ns)


@dataclass(slots=True)
class _Message:
    """A message that is not completely written; `sent` is called at the end of writing, `arrived` when the peer has it.

    Thread `by` writes as much as the socket takes at once.
    """

    left_bytes: int
    by: Thread
    sent: Callable[[], None] | None
    arrived: Callable[[], None]


@dataclass(slots=True)
class _Written:
    """A write that the socket has not completely passed to the network; `arrived` is set if it ends a message."""

    left_bytes: int
    arrived: Callable[[], None] | None


class Ports:
    """The ports of a cluster, by link."""

    def __init__(self) -> None:
        self._ports: dict[Capacity, Port] = {}

    def of(self, path: Path) -> list[Port]:
        """Return the ports that a path crosses."""
        return [self._ports.setdefault(link, Port(link)) for link in path.links if link.has_queue]


class TcpConnection:
    """A connection from one rank to another, in one direction; messages arrive in the order of `put`.

    The thread that puts a message writes as much as the socket has room for; the thread that serves the sockets writes
    the rest when there is room again. The socket keeps the first port's queue filled.

    gloo guards a connection with a lock, on which the serving thread spins. If the lock's owner waits for the core that
    the serving thread spins on, this lasts until the system takes the core away.
    """

    def __init__(self, machine: Machine, hosts: HostCores, ports: Ports, *, group: str, ends: tuple[int, int]) -> None:
        source, target = ends
        path = machine.fabric.network.socket_path(source, target)
        self._machine, self._hosts, self._tcp = machine, hosts, hosts.tcp
        self._loop, self._receiver = hosts.loop(source, group), hosts.loop(target, group)
        self._ports, self._back = ports.of(path), ports.of(machine.fabric.network.socket_path(target, source))
        self._inside = [link for link in path.links if not link.has_queue]
        self._latency_ns = path.latency_ns
        self._messages: deque[_Message] = deque()
        self._is_writing = False
        self._socket: deque[_Written] = deque()
        self._unacknowledged_bytes = 0  # bytes of which the socket keeps a copy
        self._queued_bytes = 0  # in front of the first port

    def put(
        self, size_bytes: int, by: Thread | None, sent: Callable[[], None] | None, arrived: Callable[[], None]
    ) -> None:
        """Queue a message, which thread `by` writes unless earlier messages wait.

        `sent` is called when the socket has taken all bytes, `arrived` when the peer has read them.
        """
        assert by is not None, "a thread writes to a socket"
        spin_ns = 0.0 if by is self._loop else self._hosts.spin_ns(self._loop)
        if spin_ns:
            self._loop.run(spin_ns, partial(self._put, size_bytes, by, sent, arrived))
        else:
            self._put(size_bytes, by, sent, arrived)

    def _put(self, size_bytes: int, by: Thread, sent: Callable[[], None] | None, arrived: Callable[[], None]) -> None:
        # Behind a message that stands still the serving thread writes, as gloo's does once the socket is writable.
        waits = bool(self._messages) and not self._is_writing
        self._messages.append(_Message(size_bytes, self._loop if waits else by, sent, arrived))
        if len(self._messages) == 1:
            self._write(first=True)

    def _write(self, *, first: bool) -> None:
        """Write a piece of the first message, as much as the socket takes."""
        message, room_bytes = self._messages[0], self._tcp.send_buffer_bytes - self._unacknowledged_bytes
        size_bytes = min(room_bytes, message.left_bytes, _PIECE_BYTES)
        message.left_bytes -= size_bytes
        self._unacknowledged_bytes += size_bytes
        self._is_writing = True
        work_ns = self._tcp.post_ns * first + size_bytes / self._tcp.send_bytes_per_ns
        message.by.run(work_ns, partial(self._wrote, message, size_bytes))

    def _wrote(self, message: _Message, size_bytes: int) -> None:
        self._is_writing = False
        ends = not message.left_bytes
        if size_bytes:
            self._socket.append(_Written(size_bytes, message.arrived if ends else None))
            self._transmit()
        if not ends:
            if self._unacknowledged_bytes < self._tcp.send_buffer_bytes:
                self._write(first=False)
            else:
                # The socket is full: the serving thread writes the rest when acknowledgements free its buffer.
                message.by = self._loop
            return
        self._messages.popleft()
        if message.sent is not None:
            message.sent()
        if self._messages and not self._is_writing:
            self._write(first=True)

    def _go_on(self) -> None:
        """Continue to write when a third of the socket's buffer is free again, as Linux reports it writable then."""
        tcp = self._tcp
        is_held = bool(self._messages) and not self._is_writing
        if is_held and 3 * (tcp.send_buffer_bytes - self._unacknowledged_bytes) >= tcp.send_buffer_bytes:
            self._write(first=False)

    def _transmit(self) -> None:
        """Pass segments to the first port while its queue has room for this connection."""
        while self._socket and self._queued_bytes < self._tcp.queue_bytes:
            written = self._socket[0]
            segment_bytes = min(SEGMENT_BYTES, written.left_bytes)
            written.left_bytes -= segment_bytes
            self._queued_bytes += segment_bytes
            arrived = None
            if not written.left_bytes:
                arrived = self._socket.popleft().arrived
            self._cross(0, self._machine.clock.now_ns, segment_bytes, arrived)

    def _cross(self, crossed: int, whole_ns: int, segment_bytes: int, arrived: Callable[[], None] | None) -> None:
        """Move a segment to the next port, or to the receiver: its first packet is there now, its last byte at
        `whole_ns`.
        """
        machine = self._machine
        now_ns = machine.clock.now_ns
        # The segment has left the first port's queue (without ports it was never in one): room for the next.
        if crossed == min(1, len(self._ports)):
            self._queued_bytes -= segment_bytes
            if crossed:
                self._transmit()
        if crossed == len(self._ports):
            delay_ns = whole_ns - now_ns + self._latency_ns
            machine.clock.call_in(delay_ns, partial(self._read, segment_bytes, arrived))
            return
        first_ns, last_ns = self._ports[crossed].pass_through(segment_bytes, now_ns, whole_ns)
        machine.clock.call_in(first_ns - now_ns, partial(self._cross, crossed + 1, last_ns, segment_bytes, arrived))

    def _read(self, segment_bytes: int, arrived: Callable[[], None] | None) -> None:
        tcp, machine = self._tcp, self._machine
        for link in self._inside:
            link.pass_by(segment_bytes, machine.clock.now_ns)
        for port in self._back:
            port.load(segment_bytes * tcp.acknowledged_share, machine.clock.now_ns)
        machine.sleep(self._latency_ns).then(partial(self._acknowledge, segment_bytes))
        work_ns = segment_bytes / tcp.receive_bytes_per_ns
        if arrived is None:
            self._receiver.run(work_ns, do_nothing)
        else:
            self._receiver.run(work_ns + tcp.message_ns, arrived)

    def _acknowledge(self, segment_bytes: int) -> None:
        self._unacknowledged_bytes -= segment_bytes
        self._go_on()

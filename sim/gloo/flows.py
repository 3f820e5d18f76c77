"""Simulates gloo's scripts of sends and receives, message by message, on its connections.

One connection joins each pair of ranks of a group. Each direction has one first-in-first-out queue for data and
notices, so a notice waits behind data that was queued before it. Data leaves when the send is posted and the receiver's
notice has arrived, whichever is later.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import lru_cache

from scenarios.do_nothing import do_nothing
from scenarios.seam.kernel import Kernel
from scenarios.seam.traits import MESSAGES
from sim.clock import Signal
from sim.engine.machine import Machine
from sim.engine.network import Path
from sim.engine.slow_start import SlowStart, slow_start
from sim.gloo import algorithms as gloo
from sim.gloo.script import (
    HEADER_BYTES,
    NOTICE_BYTES,
    Copy,
    Instruction,
    Recv,
    Reduce,
    Send,
    WaitRecv,
    WaitSend,
)
from sim.hosts.cores import HostCores, Thread
from sim.hosts.tcp import Ports, TcpConnection
from sim.rank.rendezvous import Rendezvous


class Flow:
    """A connection with its fair share of each link, without CPU time on hosts."""

    __slots__ = ("_busy", "_machine", "_path", "_queue", "_slow_start")

    def __init__(self, machine: Machine, path: Path, slow_start: SlowStart | None) -> None:
        self._machine = machine
        self._path = path
        self._slow_start = slow_start
        self._queue: deque[tuple[int, Callable[[], None] | None, Callable[[], None]]] = deque()
        self._busy = False

    def put(
        self, size_bytes: int, by: Thread | None, sent: Callable[[], None] | None, arrived: Callable[[], None]
    ) -> None:
        """Queue a message; `sent` is called when its last byte has left, `arrived` a latency later."""
        self._queue.append((size_bytes, sent, arrived))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = bool(self._queue)
        if self._busy:
            size_bytes, sent, arrived = self._queue.popleft()
            if self._slow_start is None:
                self._carry(size_bytes, sent, arrived)
            else:
                lost_ns = self._slow_start.lost_ns(size_bytes, self._machine.clock.now_ns)
                self._machine.sleep(lost_ns).then(lambda: self._carry(size_bytes, sent, arrived))

    def _carry(self, size_bytes: int, sent: Callable[[], None] | None, arrived: Callable[[], None]) -> None:
        def end() -> None:
            self._machine.sleep(self._path.latency_ns).then(arrived)
            # The flow is still busy, so a message that `sent` puts goes behind those that wait.
            if sent is not None:
                sent()
            self._next()

        self._machine.carry(self._path, size_bytes).then(end)


class Slot:
    """A message, which leaves when it is posted and the receiver is `ready`."""

    __slots__ = ("posted_bytes", "ready", "received", "sent")

    def __init__(self) -> None:
        # Not posted yet; 0 is a posted message without payload, such as a barrier's.
        self.posted_bytes = -1
        self.ready = False
        self.sent: Signal[None] = Signal()
        self.received: Signal[None] = Signal()


Slots = dict[tuple[int, int, int], Slot]


class GlooFlows:
    """A transport that simulates every message of every member."""

    def __init__(self, machine: Machine, threads: HostCores | None = None) -> None:
        """Create a transport on `machine`; `threads` are the hosts' threads, where these are modelled."""
        self.machine, self.threads = machine, threads
        self._ports = Ports()
        self._connections: dict[tuple[str, int, int], Flow | TcpConnection] = {}
        self._slots: dict[Rendezvous, Slots] = defaultdict(lambda: defaultdict(Slot))

    def __call__(self, rendezvous: Rendezvous, member: int, thread: Thread | None = None) -> None:
        """Run the script of a member that has entered."""
        _Player(self, rendezvous, member, thread)

    def slots(self, rendezvous: Rendezvous) -> Slots:
        """Return the messages of a rendezvous, created at first use."""
        return self._slots[rendezvous]

    def close(self, rendezvous: Rendezvous) -> None:
        """Drop a rendezvous's messages when all members have finished."""
        through = rendezvous.through.values()
        if len(through) == rendezvous.group.size and all(signal.done for signal in through):
            self._slots.pop(rendezvous, None)

    def put(
        self,
        rendezvous: Rendezvous,
        ends: tuple[int, int],
        size_bytes: int,
        by: Thread | None,
        *,
        sent: Callable[[], None] | None = None,
        arrived: Callable[[], None],
    ) -> None:
        """Queue a message from one member to another on their connection; arguments as for `Flow.put`."""
        ranks = rendezvous.group.ranks[ends[0]], rendezvous.group.ranks[ends[1]]
        self.machine.traffic.add(*ranks, size_bytes)
        self._connection(rendezvous.group.name, ranks).put(size_bytes, by, sent, arrived)

    def _connection(self, group: str, ranks: tuple[int, int]) -> Flow | TcpConnection:
        machine, key = self.machine, (group, *ranks)
        if key not in self._connections:
            self._connections[key] = (
                Flow(machine, machine.fabric.connection(*ranks), slow_start(machine.fabric, *ranks))
                if self.threads is None
                else TcpConnection(machine, self.threads, self._ports, group=group, ends=ranks)
            )
        return self._connections[key]


class _Player:
    """A member that executes its script.

    One of the library's threads runs it; the program's own thread runs a send or recv. Where hosts are not modelled, no
    thread takes any time.
    """

    def __init__(self, wire: GlooFlows, rendezvous: Rendezvous, member: int, program: Thread | None) -> None:
        """Start the script of a member whose program has issued its call."""
        call = rendezvous.calls[member]
        self._wire, self._machine, self._slots = wire, wire.machine, wire.slots(rendezvous)
        self._rendezvous, self._member, self._rank = rendezvous, member, rendezvous.group.ranks[member]
        self._instructions: Iterator[Instruction] = iter(gloo.script(call))
        self._is_message = call.op in MESSAGES
        hosts = wire.threads
        self._thread = program if hosts is None or self._is_message else hosts.worker(self._rank)
        self._wake()

    def _go_on(self) -> None:
        """Execute instructions until one blocks or the script ends."""
        for instruction in self._instructions:
            signal = self._do(instruction)
            if signal is not None and not signal.done:
                # gloo's thread sleeps while it waits for a message; its own sums keep it awake.
                signal.then(self._wake if isinstance(instruction, WaitSend | WaitRecv) else self._go_on)
                return
        # Before `close`, which drops the messages when all members have finished.
        self._rendezvous.finish(self._member)
        self._wire.close(self._rendezvous)

    def _wake(self) -> None:
        """Wake the script's thread; the program's own thread is woken by its await instead."""
        hosts = self._wire.threads
        # A send or recv runs in the program's own thread, which is not asleep.
        if self._thread is None or hosts is None or self._is_message:
            self._go_on()
        else:
            self._thread.wake(hosts.tcp.message_ns, self._go_on)

    def _do(self, instruction: Instruction) -> Signal[None] | None:
        """Start an instruction; the returned signal must fire before the next instruction, None: no wait."""
        match instruction:
            case Send():
                return self._post_send(instruction)
            case Recv():
                return self._post_recv(instruction)
            case WaitSend(peer, tag):
                return self._slots[self._member, peer, tag].sent
            case WaitRecv(peer, tag):
                return self._slots[peer, self._member, tag].received
            case Reduce(size_bytes):
                kernel = local_kernel(size_bytes, 0)
            case Copy(size_bytes):
                kernel = local_kernel(0, size_bytes)
        return local(self._machine, self._rank, kernel, self._thread)

    def _end_of_writes(self) -> Signal[None] | None:
        """Return a signal for the end of the thread's queued writes, None without threads."""
        if self._thread is None:
            return None
        signal: Signal[None] = Signal()
        self._thread.run(0, signal.fire)
        return signal

    def _post_send(self, send: Send) -> Signal[None] | None:
        slot = self._slots[self._member, send.peer, send.tag]
        # Read before the notice is queued, as the queue may deliver at once.
        is_ready = slot.ready
        slot.posted_bytes = send.size_bytes
        # A sender's notice delays only what is queued behind it: gloo's receivers do not wait for it.
        self._wire.put(self._rendezvous, (self._member, send.peer), NOTICE_BYTES, self._thread, arrived=do_nothing)
        if is_ready:
            self._put_data(slot, self._member, send.peer, self._thread)
        return self._end_of_writes()

    def _post_recv(self, recv: Recv) -> Signal[None] | None:
        slot = self._slots[recv.peer, self._member, recv.tag]
        group, source = self._rendezvous.group, recv.peer
        hosts = self._wire.threads
        # Data that waited for this notice is written by the peer's serving thread, which receives the notice.
        sender = None if hosts is None else hosts.loop(group.ranks[source], group.name)

        def ready() -> None:
            slot.ready = True
            if slot.posted_bytes >= 0:
                self._put_data(slot, source, self._member, sender)

        self._wire.put(self._rendezvous, (self._member, source), NOTICE_BYTES, self._thread, arrived=ready)
        return self._end_of_writes()

    def _put_data(self, slot: Slot, source: int, target: int, by: Thread | None) -> None:
        size_bytes = HEADER_BYTES + slot.posted_bytes
        fired = slot.sent.fire, slot.received.fire
        self._wire.put(self._rendezvous, (source, target), size_bytes, by, sent=fired[0], arrived=fired[1])


@lru_cache(maxsize=4096)
def local_kernel(reduced_bytes: int, copied_bytes: int) -> Kernel:
    """Return gloo's own loops as a kernel without launches: add received bytes to local ones, and copy."""
    return Kernel(
        kind="elementwise",
        bytes_read=2.0 * reduced_bytes + copied_bytes,
        bytes_written=float(reduced_bytes + copied_bytes),
        launches=0,
    )


def local(machine: Machine, rank: int, kernel: Kernel, thread: Thread | None = None) -> Signal[None]:
    """Run gloo's sums and copies on the host: on the device if that is a CPU, else on a core of the GPU's host."""
    cluster = machine.fabric.cluster
    if machine.runs_on_cores:
        return machine.kernel(rank, kernel, None if thread is None else thread.run)
    if cluster.core_bytes_per_s is None:
        return machine.sleep(0)
    return machine.sleep(round((kernel.bytes_read + kernel.bytes_written) / cluster.core_bytes_per_s * 1e9))

"""Simulates gloo's scripts of sends and receives, message by message, on its connections.

One connection joins each pair of ranks of a group. Each direction has one first-in-first-out queue for data and notices
alike, so a notice waits behind data that was queued before it. Data goes when the send is posted and the receiver's
notice has come, whichever is later.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import lru_cache

from scenarios.do_nothing import do_nothing
from scenarios.seam.kernel import Kernel
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
from sim.hosts.cores import Hosts, Thread
from sim.hosts.tcp import Ports, TcpConnection
from sim.rank.rendezvous import Rendezvous


class Flow:
    """A connection that gets its fair share of each link and costs the hosts nothing."""

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
        def gone() -> None:
            self._machine.sleep(self._path.latency_ns).then(arrived)
            if sent is not None:
                sent()
            self._next()

        self._machine.carry(self._path, size_bytes).then(gone)


class Slot:
    """One message: it goes when it was `posted` and the receiver is `ready`."""

    __slots__ = ("posted_bytes", "ready", "received", "sent")

    def __init__(self) -> None:
        self.posted_bytes = -1
        self.ready = False
        self.sent: Signal[None] = Signal()
        self.received: Signal[None] = Signal()


Slots = dict[tuple[int, int, int], Slot]


class GlooFlows:
    """The transport that simulates every message of every member."""

    def __init__(self, machine: Machine, threads: Hosts | None = None) -> None:
        """`threads` of the hosts, where they are modelled."""
        self.machine, self.threads = machine, threads
        self._ports = Ports()
        self._connections: dict[tuple[str, int, int], Flow | TcpConnection] = {}
        self._slots: dict[Rendezvous, Slots] = defaultdict(lambda: defaultdict(Slot))

    def __call__(self, rendezvous: Rendezvous, member: int, thread: Thread | None = None) -> None:
        """A member has entered: it runs its script, and is through at its end."""
        _Player(self, rendezvous, member, thread)

    def slots(self, rendezvous: Rendezvous) -> Slots:
        """The messages of a rendezvous, made when first used."""
        return self._slots[rendezvous]

    def close(self, rendezvous: Rendezvous) -> None:
        """Forget a rendezvous's messages when all members are through."""
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
        """Queue a message from one member to another on their connection; arguments as those of `Flow.put`."""
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
    """One member on its way through its script.

    One of the library's threads runs it; the program's own runs a send or recv. Where hosts are not modelled,
    no thread takes any time.
    """

    def __init__(self, wire: GlooFlows, rendezvous: Rendezvous, member: int, program: Thread | None) -> None:
        """Begin: the program has issued its call."""
        call = rendezvous.calls[member]
        self._wire, self._machine, self._slots = wire, wire.machine, wire.slots(rendezvous)
        self._rendezvous, self._member, self._rank = rendezvous, member, rendezvous.group.ranks[member]
        self._instructions: Iterator[Instruction] = iter(gloo.script(call))
        self._is_message = call.op in ("send", "recv")
        hosts = wire.threads
        self._thread = program if hosts is None or self._is_message else hosts.worker(self._rank)
        self._wake()

    def _go_on(self) -> None:
        """Until something has to be waited for, or the end."""
        for instruction in self._instructions:
            signal = self._do(instruction)
            if signal is not None and not signal.done:
                signal.then(self._wake if isinstance(instruction, WaitSend | WaitRecv) else self._go_on)
                return
        self._rendezvous.finish(self._member)
        self._wire.close(self._rendezvous)

    def _wake(self) -> None:
        """The thread, which slept, is told to go on; the program's own is woken by what it awaits."""
        hosts = self._wire.threads
        if self._thread is None or hosts is None or self._is_message:
            self._go_on()
        else:
            self._thread.wake(hosts.tcp.message_ns, self._go_on)

    def _do(self, instruction: Instruction) -> Signal[None] | None:
        """Carry it out; what is returned must happen before the next one."""
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

    def _posted(self) -> Signal[None] | None:
        """When the thread has written what there was to write."""
        if self._thread is None:
            return None
        signal: Signal[None] = Signal()
        self._thread.run(0, signal.fire)
        return signal

    def _post_send(self, send: Send) -> Signal[None] | None:
        slot = self._slots[self._member, send.peer, send.tag]
        is_ready = slot.ready
        slot.posted_bytes = send.size_bytes
        self._wire.put(self._rendezvous, (self._member, send.peer), NOTICE_BYTES, self._thread, arrived=do_nothing)
        if is_ready:
            self._put_data(slot, self._member, send.peer, self._thread)
        return self._posted()

    def _post_recv(self, recv: Recv) -> Signal[None] | None:
        slot = self._slots[recv.peer, self._member, recv.tag]
        group, source = self._rendezvous.group, recv.peer
        hosts = self._wire.threads
        sender = None if hosts is None else hosts.loop(group.ranks[source], group.name)

        def ready() -> None:
            slot.ready = True
            if slot.posted_bytes >= 0:
                self._put_data(slot, source, self._member, sender)

        self._wire.put(self._rendezvous, (self._member, source), NOTICE_BYTES, self._thread, arrived=ready)
        return self._posted()

    def _put_data(self, slot: Slot, source: int, target: int, by: Thread | None) -> None:
        size_bytes = HEADER_BYTES + slot.posted_bytes
        fired = slot.sent.fire, slot.received.fire
        self._wire.put(self._rendezvous, (source, target), size_bytes, by, sent=fired[0], arrived=fired[1])


@lru_cache(maxsize=4096)
def local_kernel(reduced_bytes: int, copied_bytes: int) -> Kernel:
    """Adding received bytes to as many local ones, and copying; gloo's own loops, no operator is launched."""
    return Kernel(
        kind="elementwise",
        bytes_read=2.0 * reduced_bytes + copied_bytes,
        bytes_written=float(reduced_bytes + copied_bytes),
        launches=0,
    )


def local(machine: Machine, rank: int, kernel: Kernel, thread: Thread | None = None) -> Signal[None]:
    """gloo adds and copies on the host, which may be the device; of a GPU's host a core does it."""
    cluster = machine.fabric.cluster
    if machine.runs_on_cores:
        return machine.kernel(rank, kernel, None if thread is None else thread.run)
    if cluster.core_bytes_per_s is None:
        return machine.sleep(0)
    return machine.sleep(round((kernel.bytes_read + kernel.bytes_written) / cluster.core_bytes_per_s * 1e9))

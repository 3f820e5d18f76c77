"""An operation of a simulated rank: the span under construction, and the Work that the program awaits."""

from __future__ import annotations

from collections.abc import Generator
from contextvars import ContextVar
from typing import Any, Protocol

from scenarios.seam.calls import Call
from scenarios.seam.kernel import Kernel
from scenarios.seam.roles import NO_PURPOSE
from scenarios.seam.trace import Span
from sim.clock import Clock, Signal
from sim.hosts.cores import HostCores, Thread
from sim.rank.rendezvous import Rendezvous

# Training step of the coroutine, or in which it was spawned; -1 outside of steps.
STEP: ContextVar[int] = ContextVar("step", default=-1)


class Issuer(Protocol):
    """A rank's backend on one stream, which issues operations; `shared` is the run's `World`."""

    rank: int
    stream: str
    clock: Clock
    shared: Any
    thread: Thread | None

    @property
    def host(self) -> int: ...
    @property
    def threads(self) -> HostCores: ...


class Operation(Signal[Any]):
    """An operation of a rank; as a signal it fires at its end. Times are ns, -1 until known."""

    __slots__ = (
        "backend",
        "call",
        "end_ns",
        "formula_ns",
        "index",
        "issued_ns",
        "kernel",
        "kind",
        "label",
        "launch_ns",
        "purpose",
        "rank",
        "rendezvous",
        "sequence",
        "start_ns",
        "step",
        "stream",
        "wait_from_ns",
        "wait_until_ns",
    )

    def __init__(self, backend: Issuer, kind: str, label: str, sequence: int) -> None:
        """Issue the operation now; `sequence` counts the stream's recorded operations, -1 if it is not recorded."""
        super().__init__()
        self.backend, self.rank, self.stream = backend, backend.rank, backend.stream
        self.kind, self.label, self.sequence = kind, label, sequence
        self.step = STEP.get()
        self.issued_ns = backend.clock.now_ns
        self.start_ns = self.end_ns = self.wait_from_ns = self.wait_until_ns = self.index = self.formula_ns = -1
        self.launch_ns, self.purpose = 0, NO_PURPOSE
        self.call: Call | None = None
        self.kernel: Kernel | None = None
        self.rendezvous: Rendezvous | None = None

    def launching(self, launch_ns: int) -> None:
        """Add time in which the computation waits for the host to launch its kernels."""
        self.launch_ns += launch_ns

    def finish(self, value: object = None, error: BaseException | None = None) -> None:
        """End the operation now."""
        self.end_ns = self.backend.clock.now_ns
        self.fire(value, error)

    def __await__(self) -> Generator[Any, Any, Any]:
        world, clock, thread = self.backend.shared, self.backend.clock, self.backend.thread
        world.outstanding.pop(self, None)  # a stream that waits for it may have removed it
        world.waiting[self] = None
        if thread is not None:  # the thread finishes earlier work before it reaches the await
            reached: Signal[None] = Signal()
            thread.run(0, reached.fire)
            yield from reached.wait(clock)
        self.wait_from_ns = clock.now_ns
        is_over = self.done
        yield from self.wait(clock)
        # A thread blocked on communication sleeps and is woken; one that computes is not.
        if thread is not None and not is_over and self.kernel is None:
            woken: Signal[None] = Signal()
            thread.wake(self.backend.threads.tcp.message_ns, woken.fire)
            yield from woken.wait(clock)
        world.waiting.pop(self, None)  # another stream that waits for it may have removed it
        self.wait_until_ns = clock.now_ns
        world.ledger.finish(self)
        if self.error is not None:
            raise self.error
        return self.value

    @property
    def name(self) -> str:
        """Operation and label, as error messages name them."""
        return self.kind if self.label in ("", self.kind) else f"{self.kind} '{self.label}'"

    def describe(self) -> str:
        """Return the operation and where it was issued, for error messages."""
        return f"{self.name} on stream {self.stream}" + (f" in step {self.step}" if self.step >= 0 else "")

    def describe_wait(self) -> str:
        """Describe this operation, and the members that it still lacks, for a deadlock's error message."""
        rendezvous = self.rendezvous
        if rendezvous is None:
            return self.describe()
        call, missing = f"{self.name} (call {rendezvous.index} of group {rendezvous.group.name})", rendezvous.missing
        if not missing:
            return call
        ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        return f"{call}, which {ranks} never entered"

    def span(self) -> Span:
        """Return the finished operation as a span."""
        call, kernel = self.call, self.kernel
        return Span(
            rank=self.rank,
            host=self.backend.host,
            stream=self.stream,
            step=self.step,
            sequence=self.sequence,
            kind=self.kind,
            label=self.label,
            group=call.group.name if call else "",
            call=self.index,
            issued_ns=self.issued_ns,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            wait_from_ns=self.wait_from_ns,
            wait_until_ns=self.wait_until_ns,
            bytes_in=call.bytes_in if call else 0,
            bytes_out=call.bytes_out if call else 0,
            bytes_sent=call.bytes_sent if call else 0,
            dtype=call.dtype if call else kernel.dtype if kernel else "",
            kernel=kernel.kind if kernel else "",
            flops=kernel.flops if kernel else 0.0,
            bytes_read=kernel.bytes_read if kernel else 0.0,
            bytes_written=kernel.bytes_written if kernel else 0.0,
            rank_count=self.backend.shared.rank_counts[self.rank],
            formula_ns=self.formula_ns,
            launch_ns=self.launch_ns,
            recomputed_flops=kernel.recomputed_flops if kernel else 0.0,
            role=self.purpose.role,
            sharding=self.purpose.sharding,
        )

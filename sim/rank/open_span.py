"""A span in the making; when it is finished is left to `ledger`."""

from __future__ import annotations

from scenarios.seam.calls import Call
from scenarios.seam.rank import Kernel
from scenarios.seam.trace import Span


class Draft:
    """A span in the making."""

    __slots__ = (
        "call",
        "end_ns",
        "formula_ns",
        "host",
        "index",
        "issued_ns",
        "kernel",
        "kind",
        "label",
        "rank",
        "rank_count",
        "sequence",
        "start_ns",
        "step",
        "stream",
        "wait_from_ns",
        "wait_until_ns",
    )

    def __init__(self, rank: int, host: int, stream: str, kind: str, label: str, rank_count: int = 1) -> None:
        self.rank, self.host, self.stream, self.kind, self.label = rank, host, stream, kind, label
        self.rank_count = rank_count
        self.step = self.sequence = self.index = -1
        self.issued_ns = self.start_ns = self.end_ns = self.wait_from_ns = self.wait_until_ns = -1
        self.formula_ns = -1
        self.call: Call | None = None
        self.kernel: Kernel | None = None

    @property
    def name(self) -> str:
        """The operation as a person reads it in an error."""
        return self.kind if self.label in ("", self.kind) else f"{self.kind} '{self.label}'"

    def describe(self) -> str:
        """The operation and where it was issued."""
        return f"{self.name} on stream {self.stream}" + (f" in step {self.step}" if self.step >= 0 else "")

    def span(self) -> Span:
        """The finished record."""
        call, kernel = self.call, self.kernel
        return Span(
            rank=self.rank,
            host=self.host,
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
            rank_count=self.rank_count,
            formula_ns=self.formula_ns,
        )

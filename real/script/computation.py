"""Records what a script computes between two cuts of its step."""

from __future__ import annotations

from real.rank.journal import Row
from real.rank.lanes import Mark, StreamLane
from scenarios.seam.kernel import Kernel
from scenarios.workloads.recording.events.work import Label
from scenarios.workloads.script.script_streams import KIND

# The dtype of a kernel about which nothing else is known.
_DTYPE = Kernel(kind=KIND).dtype


class ScriptComputation:
    """A script's computation from one mark on its stream to the next; slots only, because a run has many of them."""

    __slots__ = ("end", "label", "lane", "sequence", "start", "step", "stream")
    kind = "compute"

    def __init__(
        self, lane: StreamLane, stream: str, label: Label, step: int, sequence: int, start: Mark, end: Mark
    ) -> None:
        self.lane, self.stream, self.label, self.step, self.sequence = lane, stream, label, step, sequence
        self.start, self.end = start, end

    def is_finished(self, *, is_last: bool) -> bool:
        """Return whether the device has passed its end, so that it can become a row."""
        return self.lane.is_past(self.end)

    def row(self, rank: int, host: int) -> Row:
        """Return the fields of a `Span`, as `Entry.row`; issue and start are equal, as the script's Python computes."""
        start, end = self.lane.ns(self.start), self.lane.ns(self.end)
        # fmt: off
        return (
            rank, host, self.stream, self.step, self.sequence, "compute", self.label.text, "", -1,
            start, start, max(start, end), start, start, 0, 0, 0, _DTYPE, KIND, 0.0, 0.0, 0.0, 1, -1, 0, 0.0, "",
            self.label.role, "",
        )
        # fmt: on

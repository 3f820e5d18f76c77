"""Find the critical path of a step from its spans, for simulated and real runs.

The walk goes back from the end of the step on the rank that ended last. Where the program continued after a wait, the
cause is the latest-ending span that can block a program: a computation, or communication that blocked it. Where a
span started later than it was issued, the cause is the span of that rank that ended last in between. A collective takes
the time since its last member entered; from there the walk continues at that member. Time that no span explains is
"host": the program's own time. Segments touch, so that they add up to the step time exactly. `what` is the class of a
segment. Computation of a rank is counted as waiting while at least half of the others are blocked until that rank
enters a collective of the path or ends the step; part of the rest may be launch time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from reports.analysis.by_role import HOST, whats
from reports.analysis.frames import COMPUTE, STEP, Overlaps, ints, texts
from reports.analysis.intervals import Ints, union
from reports.analysis.waits import standing_still
from reports.store.columns import frame_of_columns

# Columns of the spans that the walk reads.
COLUMNS = ["rank", "stream", "step", "sequence", "kind", "label", "group", "call"]
COLUMNS += ["issued_ns", "start_ns", "end_ns", "wait_from_ns", "wait_until_ns", "kernel", "dtype"]
COLUMNS += ["launch_ns", "rank_count", "role"]
PATH = {
    "step": "int",
    "order": "int",
    "rank": "int",
    **dict.fromkeys(["part", "kind", "label", "stream", "kernel", "dtype"], "str"),
    **dict.fromkeys(["from_ns", "to_ns", "duration_ns"], "int"),
    "share": "float",
    "what": "str",
    **dict.fromkeys(["waiting_ns", "launching_ns"], "int"),
}
WAITED_FOR = {
    "step": "int",
    "order": "int",
    **dict.fromkeys(["part", "kind", "label", "stream"], "str"),
    **dict.fromkeys(["segments", "duration_ns"], "int"),
    "share": "float",
}


class PathSegment(NamedTuple):
    """A stretch of the critical path; `row` is the span's row, -1 for the program's own time."""

    rank: int
    row: int
    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A position of the walk: a rank and a moment, for which the span is sought that let the rank go on then."""

    rank: int
    at_ns: int
    stream: int = -1
    since_ns: int | None = None  # None: the program went on; else a span issued then had waited until `at_ns`


class _ByEnd:
    """An index of spans by rank and end, to find the span that ended last before a moment."""

    def __init__(self, spans: _Spans, kept: npt.NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(kept)
        keys = (spans.sequence[rows], spans.start[rows], spans.end[rows], spans.rank[rows])
        self.rows = rows[np.lexsort(keys)]
        self.ends = spans.end[self.rows]
        self.ranks, firsts = np.unique(spans.rank[self.rows], return_index=True)
        bounds = [*firsts.tolist(), len(self.rows)]
        self.bounds = {rank: (bounds[at], bounds[at + 1]) for at, rank in enumerate(self.ranks.tolist())}
        self.stream = spans.stream

    def latest(self, cursor: _Cursor, used: set[int]) -> int:
        """Return the unused row that ended last up to the cursor, in ties one on its stream; -1 if none is left."""
        first, last = self.bounds.get(cursor.rank, (0, 0))
        at = first + int(np.searchsorted(self.ends[first:last], cursor.at_ns, side="right")) - 1
        found, end = -1, 0
        while at >= first and (found < 0 or self.ends[at] == end):
            row = int(self.rows[at])
            if row not in used:
                if self.stream[row] == cursor.stream:
                    return row
                found, end = (row, int(self.ends[at])) if found < 0 else (found, end)
            at -= 1
        return found


class _Spans:
    """The span columns that the walk reads, and for each collective the row of the member that entered last."""

    def __init__(self, spans: pd.DataFrame, last_member: Ints) -> None:
        self.rank, self.sequence = ints(spans, "rank"), ints(spans, "sequence")
        self.issued, self.start, self.end = ints(spans, "issued_ns"), ints(spans, "start_ns"), ints(spans, "end_ns")
        self.stream: Ints = pd.factorize(spans["stream"])[0].astype(np.int64)
        kind = texts(spans, "kind")
        from_ns, until_ns = ints(spans, "wait_from_ns"), ints(spans, "wait_until_ns")
        waited = (until_ns > from_ns) & (from_ns < self.end)  # a real await takes some ns even if the work is complete
        working = kind != STEP
        self.by_end = _ByEnd(self, working)
        self.holding = _ByEnd(self, working & (waited | (kind == COMPUTE)))
        self.last_member = last_member


def critical_path(spans: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the path of every step in `steps`, by time, with columns `PATH`; `share` is of the step's time."""
    overlaps = Overlaps.of(spans)
    walked, waited = _Spans(spans, overlaps.last_member), standing_still(spans, overlaps)
    parts = [
        _walk(walked, int(rank), int(start), int(end))
        for rank, start, end in zip(steps["last_rank"], steps["start_ns"], steps["end_ns"], strict=True)
    ]
    segments = [segment for part in parts for segment in part]
    lengths = [len(part) for part in parts]
    columns = _describe_segments(spans, segments)
    waiting = [
        _waiting(part, walked, waited[0], waited[1].get(int(step), 0))
        for part, step in zip(parts, steps["step"], strict=True)
    ]
    columns |= _split(spans, segments, columns, np.concatenate([np.zeros(0, np.int64), *waiting]))
    whole = np.repeat(ints(steps, "step_ns"), lengths)
    columns["step"] = np.repeat(ints(steps, "step"), lengths)
    columns["order"] = np.concatenate([np.zeros(0, np.int64), *(np.arange(length) for length in lengths)])
    columns["share"] = np.divide(columns["duration_ns"], whole, out=np.zeros(len(segments)), where=whole > 0)
    return frame_of_columns(columns, PATH)


def sum_waits(path: pd.DataFrame) -> pd.DataFrame:
    """Add up the critical path by operation, in the order in which a step first waited for each operation."""
    keys = ["step", "part", "kind", "label", "stream"]
    grouped = path.groupby(keys, sort=False)  # keeps the order of first appearance
    summed = grouped.agg(segments=("order", "size"), duration_ns=("duration_ns", "sum"), share=("share", "sum"))
    frame = summed.reset_index()
    return frame_of_columns({**frame, "order": frame.groupby("step").cumcount()}, WAITED_FOR)


def dominant(path: pd.DataFrame) -> pd.DataFrame:
    """Add up the critical path of one step by kind of kernel or communication, dtype and stream, longest first.

    Columns are `part`, `kind`, `kernel`, `dtype`, `stream`, `operations` (names, longest first) with `times_ns`,
    `duration_ns` and `share`. A computation has an empty `stream`.
    """
    computes = (path["part"] == COMPUTE).to_numpy(bool)
    path = path.assign(stream=path["stream"].mask(computes, ""))
    keys = ["part", "kind", "kernel", "dtype", "stream"]
    each = path.groupby([*keys, "label"], sort=False)[["duration_ns", "share"]].sum().reset_index()
    each = each.sort_values("duration_ns", ascending=False, kind="stable")
    found = each.groupby(keys, sort=False).agg(
        operations=("label", list),
        times_ns=("duration_ns", list),
        duration_ns=("duration_ns", "sum"),
        share=("share", "sum"),
    )
    return found.reset_index().sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def _walk(spans: _Spans, rank: int, floor_ns: int, end_ns: int) -> list[PathSegment]:
    backwards: list[PathSegment] = []
    used: set[int] = set()
    cursor = _Cursor(rank, end_ns)
    while cursor.at_ns > floor_ns:
        row = _cause(spans, cursor, used)
        if row < 0 or spans.end[row] <= floor_ns:
            backwards.append(PathSegment(cursor.rank, -1, floor_ns, cursor.at_ns))
            break
        # Each span at most once: with ties of times the walk could otherwise go round in a circle.
        used.add(row)
        segments, cursor = _back_over(spans, row, cursor, floor_ns)
        backwards += segments
    return [segment for segment in reversed(backwards) if segment.to_ns > segment.from_ns]


def _cause(spans: _Spans, cursor: _Cursor, used: set[int]) -> int:
    if cursor.since_ns is not None:
        row = spans.by_end.latest(cursor, used)
        if row >= 0 and spans.end[row] > cursor.since_ns:
            return row
    return spans.holding.latest(cursor, used)


def _back_over(spans: _Spans, row: int, cursor: _Cursor, floor_ns: int) -> tuple[list[PathSegment], _Cursor]:
    """Return the host's time after the span of `row` and the span itself, latest first, and the next cursor."""
    end, last = int(spans.end[row]), int(spans.last_member[row])
    entered = min(int(spans.start[last]), end)  # clocks of real hosts may disagree a little
    host = PathSegment(cursor.rank, -1, end, cursor.at_ns)
    segments = [host, PathSegment(cursor.rank, row, max(entered, floor_ns), end)]
    queued = spans.issued[last] < spans.start[last]
    since = int(spans.issued[last]) if queued else None
    return segments, _Cursor(int(spans.rank[last]), entered, int(spans.stream[last]), since)


def _waiting(part: list[PathSegment], spans: _Spans, entered: Mapping[int, int], early_ns: int) -> Ints:
    """Return for each segment of a step's path how long (ns) other ranks are blocked by the segment's rank."""
    from_ns, to_ns = (np.array([getattr(one, name) for one in part], np.int64) for name in ("from_ns", "to_ns"))
    lasts = [int(spans.last_member[one.row]) for one in part if one.row >= 0]
    windows = [(int(spans.start[last]), entered[last]) for last in lasts if last in entered]
    # The end of the step is a wait, too: of the ranks that ended it early.
    windows += [(int(to_ns.max(initial=0)), early_ns)]
    ends, lengths = np.array(windows, np.int64).T
    return union(ends - lengths, ends).covered_ns(from_ns, to_ns)


def _split(
    spans: pd.DataFrame, segments: list[PathSegment], columns: Mapping[str, npt.NDArray[np.generic]], waiting: Ints
) -> dict[str, npt.NDArray[np.generic]]:
    """Return for each segment `what` it is, and how many ns of it are straggler wait and launch time.

    Straggler wait in a communication segment counts as communication: 0.
    """
    rows = np.array([one.row for one in segments], np.int64)
    launching, durations = np.zeros(len(rows), np.int64), np.asarray(columns["duration_ns"], np.int64)
    launching[rows >= 0] = ints(spans, "launch_ns")[rows[rows >= 0]]
    waiting = np.where(columns["part"] == "communication", 0, waiting)
    return {
        "what": whats(columns),
        "waiting_ns": waiting,
        "launching_ns": np.minimum(launching, durations - waiting),
    }


def _describe_segments(spans: pd.DataFrame, segments: list[PathSegment]) -> dict[str, npt.NDArray[np.generic]]:
    ranks, rows, from_ns, to_ns = np.array(segments, np.int64).reshape(-1, 4).T
    known, found = rows >= 0, {}
    for name, unknown in (("kind", HOST), *((name, "") for name in ("label", "stream", "kernel", "dtype", "role"))):
        found[name] = np.full(len(rows), unknown, object)
        found[name][known] = texts(spans, name)[rows[known]]
    own = (found["kind"] == COMPUTE) | (found["kind"] == HOST)
    return {
        **found,
        "rank": ranks,
        "part": np.where(own, found["kind"], "communication"),
        "from_ns": from_ns,
        "to_ns": to_ns,
        "duration_ns": to_ns - from_ns,
    }

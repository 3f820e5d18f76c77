"""Build a recording from the traces that `torch.profiler` exports, one per rank: spans, call numbers, clocks."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from reports.analysis.frames import COMPUTE, STEP
from reports.analysis.intervals import union
from reports.errors import ReportError
from reports.kineto.pieces import TracedSpan, TracePieces, group_names
from reports.kineto.trace_file import TraceFile, as_text, read_trace, whole_number
from reports.store.roles_by_label import role_of
from reports.terminal.text import count_words, printable, ranges
from scenarios.seam.trace import Recording, RunInfo, Span
from scenarios.seam.traits import MESSAGES

PLAYED_ON = "a profiler's trace"

_RANK_IN_NAME = re.compile(r"rank[_.\-]?(\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A recording made of traces, and notes on it."""

    recording: Recording
    notes: tuple[str, ...]

    @property
    def pieces(self) -> list[TracedSpan]:
        """The spans without those of steps."""
        return [span for span in self.recording.spans if isinstance(span, TracedSpan)]


def read(paths: Sequence[Path], name: str) -> Profile:
    """Return the recording of a run whose ranks left one trace each; `name` becomes the run's.

    Raises:
        ReportError: with a sentence for every mistake in the files, or for a rank that has two files.
    """
    return profile_of(read_traces(paths), name)


def read_traces(paths: Sequence[Path]) -> list[TraceFile]:
    """Return the traces of a run, one per rank, sorted by rank.

    Raises:
        ReportError: with a sentence for every mistake in the files, or for a rank that has two files.
    """
    traces, mistakes = [], []
    for path in paths:
        try:
            traces.append(read_trace(path))
        except ReportError as error:
            mistakes.append(str(error))
    if not mistakes:
        mistakes = _number(traces)
    if mistakes:
        raise ReportError("\n".join(mistakes))
    return sorted(traces, key=lambda trace: trace.rank)


def profile_of(traces: Sequence[TraceFile], name: str) -> Profile:
    """Return the recording of a run from the traces of its ranks; `name` becomes the run's."""
    notes = [note for trace in traces for note in trace.notes]
    origins = _origins(traces, notes)
    groups = group_names(traces)
    pieces, steps = [], []
    for trace, origin_ns in zip(traces, origins, strict=True):
        found = TracePieces(trace, origin_ns, groups)
        pieces += found.pieces
        if found.unsaid:
            shown = f"{printable(trace.path)}: {count_words(found.unsaid, 'SendRecv kernel')}"
            notes.append(f"{shown} without a word for what; taken for all-to-alls")
        steps += found.step_spans()
    pieces = _link(pieces, notes)
    _note_world(traces, notes)
    hosts = list(dict.fromkeys(trace.host for trace in traces))
    host_of = {trace.rank: hosts.index(trace.host) for trace in traces}
    spans = [
        dataclasses.replace(
            span, host=host_of[span.rank], role=role_of(span.kind, span.kernel, span.label, span.stream)
        )
        for span in [*_mark_waits(pieces), *steps]
    ]
    spans = _in_sequence(spans)
    recording = Recording(info=_info(traces, name, hosts, spans), spans=spans)
    return Profile(recording=recording, notes=tuple(notes))


def _number(traces: Sequence[TraceFile]) -> list[str]:
    """Set each trace's rank from its own metadata, the file's name, or its place; return mistakes as sentences."""
    said = [_read_rank(trace) for trace in traces]
    mistakes: list[str] = []
    first: dict[int, TraceFile] = {}
    for place, (trace, rank) in enumerate(zip(traces, said, strict=True)):
        trace.rank = place if rank is None else rank
        other = first.setdefault(trace.rank, trace)
        if other is not trace:
            names = printable(trace.path), printable(other.path)
            mistakes.append(f"{names[0]}: rank = {trace.rank}: that of {names[1]}, too; expected one trace a rank")
        elif rank is None and len(traces) > 1:
            trace.notes.append(f"{printable(trace.path)}: says no rank; taken as rank {place} by its place")
    return mistakes


def _read_rank(trace: TraceFile) -> int | None:
    rank = whole_number(trace.info.get("rank"), 2**31)
    if rank is None and (found := _RANK_IN_NAME.findall(trace.path.name)):
        rank = int(found[-1])
    return rank


def _origins(traces: Sequence[TraceFile], notes: list[str]) -> list[int]:
    """Return the time in ns on each trace's axis that counts as the run's 0: the first event of all traces if their
    clocks are comparable, else of each.
    """
    firsts = [min(one.start_ns for events in trace.events.values() for one in events) for trace in traces]
    if len(traces) > 1 and not all(trace.since_1970 for trace in traces):
        notes.append(
            "clocks not aligned: not all traces say when they began, so each begins at 0; compare ranks with care"
        )
        return firsts
    names = {trace.host for trace in traces} - {""}
    if len(names) > 1:
        notes.append(f"traces of {count_words(len(names), 'host')}: their clocks agree as well as the hosts kept them")
    return [min(firsts)] * len(traces)


def _link(pieces: Sequence[TracedSpan], notes: list[str]) -> list[TracedSpan]:
    """Return spans with the calls of each group counted; calls are not linked if members counted different numbers."""

    def order(one: TracedSpan) -> tuple[Any, ...]:
        about = one.name, one.group, one.step, one.label, one.bytes_in, one.bytes_out, one.bytes_read
        return one.rank, one.start_ns, one.end_ns, one.issued_ns, one.stream, *about

    counts: dict[str, Counter[int]] = defaultdict(Counter)
    found = []
    for piece in sorted(pieces, key=order):
        call = piece.call
        if piece.group and piece.kind not in MESSAGES:
            call = counts[piece.group][piece.rank]
            counts[piece.group][piece.rank] += 1
        found.append(dataclasses.replace(piece, call=call))
    apart = {group for group, of_ranks in counts.items() if len(set(of_ranks.values())) > 1}
    for group in sorted(apart):
        said = ", ".join(f"{count} on rank {rank}" for rank, count in sorted(counts[group].items())[:4])
        notes.append(f"group {group}: not as many calls on all ranks ({said}); they are not linked")
    return [dataclasses.replace(piece, call=-1) if piece.group in apart else piece for piece in found]


def _note_world(traces: Sequence[TraceFile], notes: list[str]) -> None:
    world = max((whole_number(trace.info.get("world_size"), 2**31) or 0 for trace in traces), default=0)
    if world > len(traces):
        which = f"{'rank' if len(traces) == 1 else 'ranks'} {ranges([trace.rank for trace in traces])}"
        notes.append(f"only {which} of a world of {world}: the others' waiting and bytes are not in the run")


def _mark_waits(pieces: Sequence[TracedSpan]) -> list[TracedSpan]:
    """Return spans with waits: a communication was waited for if its rank computed nothing when it ended."""
    bounds: dict[int, list[tuple[int, int]]] = {piece.rank: [] for piece in pieces}
    for piece in pieces:
        if piece.kind == COMPUTE:
            bounds[piece.rank].append((piece.start_ns, piece.end_ns))
    arrays = {rank: np.array(own, np.int64).reshape(-1, 2) for rank, own in bounds.items()}
    busy = {rank: union(own[:, 0], own[:, 1]) for rank, own in arrays.items()}
    found = []
    for piece in pieces:
        waited = piece
        if piece.kind != COMPUTE:
            at = int(np.searchsorted(busy[piece.rank].starts, piece.end_ns, side="left")) - 1
            before = int(busy[piece.rank].ends[at]) if at >= 0 else piece.start_ns
            if before < piece.end_ns:
                from_ns = max(before, piece.start_ns)
                waited = dataclasses.replace(piece, wait_from_ns=from_ns, wait_until_ns=piece.end_ns)
        found.append(waited)
    return found


def _in_sequence(spans: Iterable[Span]) -> list[Span]:
    def order(span: Span) -> tuple[Any, ...]:
        about = span.issued_ns, span.kind != STEP, span.start_ns, span.end_ns, span.call, span.label
        return span.rank, span.stream, *about

    counts: Counter[tuple[int, str]] = Counter()
    found = []
    for span in sorted(spans, key=order):
        key = span.rank, span.stream
        found.append(dataclasses.replace(span, sequence=counts[key]))
        counts[key] += 1
    return found


def _info(traces: Sequence[TraceFile], name: str, hosts: Sequence[str], spans: Sequence[Span]) -> RunInfo:
    first = traces[0]
    began_ns = min(one.start_ns for trace in traces for events in trace.events.values() for one in events)
    known = all(trace.since_1970 for trace in traces)
    started = datetime.fromtimestamp(began_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") if known else ""
    backend = as_text(first.info.get("backend", ""))
    versions = {"nccl": first.info.get("nccl_version"), "cuda_runtime": first.about.get("cuda_runtime_version")}
    took_ns = max(span.end_ns for span in spans) - min(span.start_ns for span in spans)
    return RunInfo(
        name=name, world="real", digest=PLAYED_ON, seed=0, world_size=len(traces), started=started,
        scenario={"name": name, **({"library": backend} if backend else {})},
        versions={key: as_text(value) for key, value in versions.items() if value},
        hosts=tuple(hosts), elapsed_s=took_ns / 1e9, played_on=PLAYED_ON,
    )  # fmt: skip

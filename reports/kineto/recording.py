"""A profiler's traces, one a rank, as a recording: what `torch.profiler` exports, read and put into our words.

Reading a file is left to `kineto_trace`, names to `kineto_words`, tables of kernels to `kineto_tables`, what follows
from the recording to the other modules of this room, and the folder to `store`.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from reports.analysis.frames import COMPUTE, STEP
from reports.analysis.intervals import union
from reports.errors import ReportError
from reports.kineto.names import collective_kind, kernel_kind, operator_kind
from reports.kineto.trace_file import (
    ANNOTATION,
    COPIES,
    CPU_OP,
    KERNEL,
    LAUNCHES,
    Event,
    Trace,
    as_text,
    read_trace,
    whole_number,
)
from reports.terminal.text import counted, printable, ranges
from scenarios.seam.trace import Recording, RunInfo, Span

PLAYED_ON = "a profiler's trace"
MAIN = "main"

_STEP = re.compile(r"ProfilerStep#(\d{1,15})")
# Annotations that torch itself puts around every collective say nothing that its kind does not.
_OWN = re.compile(r"ProfilerStep[#*]|(?:nccl|gloo|c10d|mpi|ucc):")
_GLOO = re.compile(r"gloo:")
_COMMUNICATES = re.compile(r"nccl\w*kernel|mscclkernel", re.IGNORECASE)
_RANK_IN_NAME = re.compile(r"rank[_.\-]?(\d{1,9})", re.IGNORECASE)
_LARGEST = 2**53

_Opening = tuple[str, int]
_NOT_ANNOTATED: _Opening = ("", -1)

_POINT_TO_POINT = ("send", "recv")
_DTYPES = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8), "Int": ("int32", 4), "Short": ("int16", 2), "Char": ("int8", 1), "Byte": ("uint8", 1),
    "Bool": ("bool", 1), "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1), "Float8_e5m2": ("float8_e5m2", 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A kernel, a memory operation or, in a trace without a GPU, an operator that no other one called.

    `name` is the trace's, `label` the innermost annotation around its launch, else the name. Times in ns on the
    run's axis. `step` is -1 outside any. `kernel` is the kind of a computation, "" of a communication. `call` counts a
    group's collectives and, of a computation, in which opening of its annotation in the step it was launched.
    """

    rank: int
    step: int
    stream: str
    name: str
    kind: str
    kernel: str
    label: str
    annotated: bool
    issued_ns: int
    start_ns: int
    end_ns: int
    group: str = ""
    call: int = -1
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_sent: int = 0
    bytes_copied: int = 0
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the traces say: a recording, the pieces that its spans were made of, and what to know about them."""

    recording: Recording
    pieces: tuple[Piece, ...]
    notes: tuple[str, ...]


def read(paths: Sequence[Path], name: str) -> Profile:
    """The recording of a run whose ranks left one trace each; `name` becomes the run's.

    Raises:
        ReportError: with a sentence for every mistake in the files, or for a rank that two of them are of.
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
    traces.sort(key=lambda trace: trace.rank)
    notes = [note for trace in traces for note in trace.notes]
    origins = _origins(traces, notes)
    groups = _group_names(traces)
    pieces, steps = [], []
    for trace, origin_ns in zip(traces, origins, strict=True):
        found = _Rank(trace, origin_ns, groups)
        pieces += found.pieces
        steps += found.step_spans()
    pieces = _linked(pieces, notes)
    _note_world(traces, notes)
    hosts = list(dict.fromkeys(trace.host for trace in traces))
    host_of = {trace.rank: hosts.index(trace.host) for trace in traces}
    spans = [*_spans(pieces), *steps]
    spans = _in_sequence([dataclasses.replace(span, host=host_of[span.rank]) for span in spans])
    recording = Recording(info=_info(traces, name, hosts, spans), spans=spans)
    return Profile(recording=recording, pieces=tuple(pieces), notes=tuple(notes))


def _number(traces: Sequence[Trace]) -> list[str]:
    """Says which rank each trace is of: its own word, the file's name, else its place; what is wrong with that."""
    said = [_said_rank(trace) for trace in traces]
    mistakes: list[str] = []
    first: dict[int, Trace] = {}
    for place, (trace, rank) in enumerate(zip(traces, said, strict=True)):
        trace.rank = place if rank is None else rank
        other = first.setdefault(trace.rank, trace)
        if other is not trace:
            names = printable(trace.path), printable(other.path)
            mistakes.append(f"{names[0]}: rank = {trace.rank}: that of {names[1]}, too; expected one trace a rank")
        elif rank is None and len(traces) > 1:
            trace.notes.append(f"{printable(trace.path)}: says no rank; taken as rank {place} by its place")
    return mistakes


def _said_rank(trace: Trace) -> int | None:
    rank = whole_number(trace.info.get("rank"), 2**31)
    if rank is None and (found := _RANK_IN_NAME.findall(trace.path.name)):
        rank = int(found[-1])
    return rank


def _origins(traces: Sequence[Trace], notes: list[str]) -> list[int]:
    """Where each trace's axis has the run's 0."""
    firsts = [min(one.start_ns for events in trace.events.values() for one in events) for trace in traces]
    if len(traces) > 1 and not all(trace.since_1970 for trace in traces):
        notes.append(
            "clocks not aligned: not all traces say when they began, so each begins at 0; compare ranks with care"
        )
        return firsts
    names = {trace.host for trace in traces} - {""}
    if len(names) > 1:
        notes.append(f"traces of {counted(len(names), 'host')}: their clocks agree as well as the hosts kept them")
    return [min(firsts)] * len(traces)


def _group_names(traces: Sequence[Trace]) -> Mapping[tuple[str, str], str]:
    """Torch's name of a process group; with its ranks where several groups have that name."""
    found: dict[str, set[str]] = defaultdict(set)
    for trace in traces:
        for args in _all_args(trace):
            name, ranks = _group_key(args)
            if name:
                found[name].add(ranks)
    return {
        (name, ranks): f"{name} {ranks}".strip() if len(found[name]) > 1 else name
        for name in found
        for ranks in found[name]
    }


def _all_args(trace: Trace) -> Iterable[Mapping[str, Any]]:
    comms = _comms(trace)
    return [_joined(event, comms) for event in trace.events.get(KERNEL, []) if _COMMUNICATES.search(event.name)]


def _comms(trace: Trace) -> dict[str, Mapping[str, Any]]:
    """What torch noted of each collective on the CPU, by the number that its kernels carry, too."""
    events = (event for event in trace.events.get(CPU_OP, []) if event.name == "record_param_comms")
    return {str(event.args["External id"]): event.args for event in events if "External id" in event.args}


def _joined(event: Event, comms: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return {**comms.get(str(event.args.get("External id")), {}), **event.args}


def _group_key(args: Mapping[str, Any]) -> tuple[str, str]:
    return as_text(args.get("Process Group Name", "")), as_text(args.get("Process Group Ranks", ""))


class _Rank:
    """The pieces and steps of one trace."""

    def __init__(self, trace: Trace, origin_ns: int, groups: Mapping[tuple[str, str], str]) -> None:
        self._trace, self._origin_ns, self._groups = trace, origin_ns, groups
        self._comms = _comms(trace)
        annotations = trace.events.get(ANNOTATION, [])
        self._steps = [event for event in annotations if _STEP.fullmatch(event.name)]
        self._step_starts = [event.start_ns for event in self._steps]
        self._annotations = [event for event in annotations if not _OWN.match(event.name)]
        self.pieces = self._of_gpu() if trace.on_gpu else self._of_cpu()

    def step_spans(self) -> list[Span]:
        """From the first kernel that was launched in a step to the end of the last; without kernels its annotation."""
        origin, own = self._origin_ns, defaultdict(list)
        for piece in self.pieces:
            own[piece.step].append(piece)
        said: dict[int, list[Event]] = defaultdict(list)
        for event in self._steps:
            said[_step_number(event)].append(event)
        found = []
        for step in sorted(said) or [0]:
            own_said = said.get(step, [])
            first = [event.start_ns - origin for event in own_said]
            bounds = list(zip(first, [event.end_ns - origin for event in own_said], strict=True))
            if own[step] and (self._trace.on_gpu or not said):
                bounds = [(piece.start_ns, piece.end_ns) for piece in own[step]]
            start, end = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)
            found.append(
                Span(
                    host=0,
                    sequence=0,
                    rank=self._trace.rank,
                    kind=STEP,
                    step=step,
                    stream=MAIN,
                    label="",
                    group="",
                    call=-1,
                    issued_ns=min([start, *first]),
                    start_ns=start,
                    end_ns=end,
                    wait_from_ns=-1,
                    wait_until_ns=-1,
                )
            )
        return found

    def _of_gpu(self) -> list[Piece]:
        launches: dict[str, Event] = {}
        for category in LAUNCHES:
            for event in self._trace.events.get(category, []):
                launches.setdefault(str(event.args.get("correlation")), event)
        launches.pop("None", None)  # said by neither side, so it joins nothing
        events = [(event, category) for category in (KERNEL, *COPIES) for event in self._trace.events.get(category, [])]
        issues = [launches.get(str(event.args.get("correlation")), event) for event, _ in events]
        openings = _openings(self._annotations, issues, self._step_of)
        streams = _streams([(event, self._verb(event, category) == COMPUTE) for event, category in events])
        return [
            self._piece(event, category, issue, opening, streams[_stream_key(event)])
            for (event, category), issue, opening in zip(events, issues, openings, strict=True)
        ]

    def _of_cpu(self) -> list[Piece]:
        """Operators that no other one called, and what gloo's threads did."""
        events = _outermost(self._trace.events.get(CPU_OP, []))
        openings = _openings(self._annotations, events, self._step_of)
        streams = _threads(events)
        pieces = [
            self._piece(event, CPU_OP, event, opening, streams[event.thread])
            for event, opening in zip(events, openings, strict=True)
        ]
        gloo = [event for event in self._trace.events.get(ANNOTATION, []) if _GLOO.match(event.name)]
        return pieces + [self._piece(event, ANNOTATION, event, _NOT_ANNOTATED, "gloo") for event in gloo]

    def _piece(self, event: Event, category: str, issue: Event, opening: _Opening, stream: str) -> Piece:
        kind = self._verb(event, category)
        kernel = ""
        if kind == COMPUTE:
            words = {CPU_OP: operator_kind, KERNEL: kernel_kind}.get(category)
            kernel = words(event.name) if words else "elementwise"
        start, end, issued = (time - self._origin_ns for time in (event.start_ns, event.end_ns, issue.start_ns))
        piece = Piece(
            rank=self._trace.rank, step=self._step_of(issue.start_ns), stream=stream, name=event.name, kind=kind,
            kernel=kernel, label=opening[0] or event.name, annotated=bool(opening[0]), issued_ns=min(issued, start),
            start_ns=start, end_ns=end, call=opening[1] if kind == COMPUTE else -1,
            bytes_copied=(whole_number(event.args.get("bytes"), _LARGEST) or 0) if category in COPIES else 0,
        )  # fmt: skip
        return piece if kind == COMPUTE else self._communication(piece, event)

    def _verb(self, event: Event, category: str) -> str:
        if category == ANNOTATION:
            return collective_kind(event.name.partition(":")[2])
        if category != KERNEL or not _COMMUNICATES.search(event.name):
            return COMPUTE
        said = as_text(_joined(event, self._comms).get("Collective name", ""))
        kind = collective_kind(said) if said else "collective"
        return collective_kind(event.name) if kind == "collective" else kind

    def _communication(self, piece: Piece, event: Event) -> Piece:
        args = _joined(event, self._comms)
        said = as_text(args.get("dtype", ""))
        dtype, item_bytes = _DTYPES.get(said, (said.lower(), 0))
        into, out = (
            (whole_number(args.get(f"{way} msg nelems"), _LARGEST // 16) or 0) * item_bytes for way in ("In", "Out")
        )
        into, out = 0 if piece.kind == "recv" else into, 0 if piece.kind == "send" else out
        size = whole_number(args.get("Group size"), 2**31) or 0
        kept = into // size if size and piece.kind == "all_to_all_single" else 0
        group = self._groups.get(_group_key(args), "")
        return dataclasses.replace(
            piece, group=group, bytes_in=into, bytes_out=out, bytes_sent=into - kept, dtype=dtype
        )  # fmt: skip

    def _step_of(self, moment_ns: int) -> int:
        if not self._steps:
            return 0
        at = bisect_right(self._step_starts, moment_ns) - 1
        return _step_number(self._steps[at]) if at >= 0 and moment_ns <= self._steps[at].end_ns else -1


def _step_number(event: Event) -> int:
    found = _STEP.fullmatch(event.name)
    assert found, "only steps are asked"
    return int(found[1])


def _openings(annotations: Sequence[Event], issues: Sequence[Event], step_of: Callable[[int], int]) -> list[_Opening]:
    """For each event the name of its innermost annotation, and which one of that name in the step it is, from 0."""
    found = [(one, step_of(issue.start_ns)) for one, issue in zip(_innermost(annotations, issues), issues, strict=True)]
    begun: dict[tuple[str, int], set[tuple[int, tuple[str, str]]]] = defaultdict(set)
    for one, step in found:
        if one is not None:
            begun[one.name, step].add((one.start_ns, one.thread))
    order = {(*key, each): number for key, all_of in begun.items() for number, each in enumerate(sorted(all_of))}
    return [
        _NOT_ANNOTATED if one is None or not one.name else (one.name, order[one.name, step, (one.start_ns, one.thread)])
        for one, step in found
    ]


def _innermost(annotations: Sequence[Event], issues: Sequence[Event]) -> list[Event | None]:
    """For each event what began last of its thread's annotations open at its start."""
    by_thread: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in annotations:
        by_thread[event.thread].append(event)  # which come by start, the enclosing ones first
    found: list[Event | None] = [None] * len(issues)
    open_now: dict[tuple[str, str], list[Event]] = defaultdict(list)
    begun: Counter[tuple[str, str]] = Counter()
    for at in sorted(range(len(issues)), key=lambda at: issues[at].start_ns):
        thread, moment = issues[at].thread, issues[at].start_ns
        listed, stack = by_thread.get(thread, []), open_now[thread]
        while begun[thread] < len(listed) and listed[begun[thread]].start_ns <= moment:
            stack.append(listed[begun[thread]])
            begun[thread] += 1
        while stack and stack[-1].end_ns < moment:
            stack.pop()
        found[at] = stack[-1] if stack else None
    return found


def _outermost(events: Sequence[Event]) -> list[Event]:
    """Those inside no other of their thread; they come by start, the enclosing ones first."""
    until: dict[tuple[str, str], int] = {}
    found = []
    for event in events:
        if event.thread not in until or event.end_ns > until[event.thread]:
            until[event.thread] = event.end_ns
            found.append(event)
    return found


def _stream_key(event: Event) -> tuple[str, str]:
    return str(event.args.get("device", "")), str(event.args.get("stream", event.thread[1]))


def _streams(events: Sequence[tuple[Event, bool]]) -> dict[tuple[str, str], str]:
    """The streams' names. The main one is where most was computed: one of collectives also waits in them."""
    times: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for event, computes in events:
        took = event.end_ns - event.start_ns
        times[_stream_key(event)][0] += took * computes
        times[_stream_key(event)][1] += took
    several = len({device for device, _ in times}) > 1
    names = {key: f"{key[0]}:{key[1]}" if several else key[1] for key in times}
    return {**names, max(sorted(times), key=lambda key: times[key]): MAIN}


def _threads(events: Sequence[Event]) -> dict[tuple[str, str], str]:
    times: Counter[tuple[str, str]] = Counter()
    for event in events:
        times[event.thread] += event.end_ns - event.start_ns
    names = {thread: thread[1] for thread in times}
    return {**names, max(sorted(times), key=lambda thread: times[thread]): MAIN}


def _linked(pieces: Sequence[Piece], notes: list[str]) -> list[Piece]:
    """With the calls of each group counted; where members counted differently, nothing says which belong together."""

    def order(one: Piece) -> tuple[Any, ...]:
        about = one.name, one.group, one.step, one.label, one.bytes_in, one.bytes_out, one.bytes_copied
        return one.rank, one.start_ns, one.end_ns, one.issued_ns, one.stream, *about

    counts: dict[str, Counter[int]] = defaultdict(Counter)
    found = []
    for piece in sorted(pieces, key=order):
        call = piece.call
        if piece.group and piece.kind not in _POINT_TO_POINT:
            call = counts[piece.group][piece.rank]
            counts[piece.group][piece.rank] += 1
        found.append(dataclasses.replace(piece, call=call))
    apart = {group for group, of_ranks in counts.items() if len(set(of_ranks.values())) > 1}
    for group in sorted(apart):
        said = ", ".join(f"{count} on rank {rank}" for rank, count in sorted(counts[group].items())[:4])
        notes.append(f"group {group}: not as many calls on all ranks ({said}); they are not linked")
    return [dataclasses.replace(piece, call=-1) if piece.group in apart else piece for piece in found]


def _note_world(traces: Sequence[Trace], notes: list[str]) -> None:
    world = max((whole_number(trace.info.get("world_size"), 2**31) or 0 for trace in traces), default=0)
    if world > len(traces):
        which = f"{'rank' if len(traces) == 1 else 'ranks'} {ranges([trace.rank for trace in traces])}"
        notes.append(f"only {which} of a world of {world}: the others' waiting and bytes are not in the run")


def _spans(pieces: Sequence[Piece]) -> list[Span]:
    """A communication was waited for if its rank computed nothing when it ended: from there to its end."""
    bounds: dict[int, list[tuple[int, int]]] = {piece.rank: [] for piece in pieces}
    for piece in pieces:
        if piece.kind == COMPUTE:
            bounds[piece.rank].append((piece.start_ns, piece.end_ns))
    arrays = {rank: np.array(own, np.int64).reshape(-1, 2) for rank, own in bounds.items()}
    busy = {rank: union(own[:, 0], own[:, 1]) for rank, own in arrays.items()}
    found = []
    for piece in pieces:
        computing, waited = busy[piece.rank], (-1, -1)
        if piece.kind != COMPUTE:
            at = int(np.searchsorted(computing.starts, piece.end_ns, side="left")) - 1
            before = int(computing.ends[at]) if at >= 0 else piece.start_ns
            waited = (max(before, piece.start_ns), piece.end_ns) if before < piece.end_ns else waited
        found.append(
            Span(
                host=0,
                sequence=0,
                rank=piece.rank,
                kind=piece.kind,
                step=piece.step,
                stream=piece.stream,
                label=piece.label,
                group=piece.group,
                call=piece.call,
                issued_ns=piece.issued_ns,
                start_ns=piece.start_ns,
                end_ns=piece.end_ns,
                wait_from_ns=waited[0],
                wait_until_ns=waited[1],
                bytes_in=piece.bytes_in,
                bytes_out=piece.bytes_out,
                bytes_sent=piece.bytes_sent,
                dtype=piece.dtype,
                kernel=piece.kernel,
                bytes_read=float(piece.bytes_copied),
                bytes_written=float(piece.bytes_copied),
            )
        )
    return found


def _in_sequence(spans: Iterable[Span]) -> list[Span]:
    def order(span: Span) -> tuple[Any, ...]:
        return (
            span.rank,
            span.stream,
            span.issued_ns,
            span.kind != STEP,
            span.start_ns,
            span.end_ns,
            span.call,
            span.label,
        )

    counts: Counter[tuple[int, str]] = Counter()
    found = []
    for span in sorted(spans, key=order):
        key = span.rank, span.stream
        found.append(dataclasses.replace(span, sequence=counts[key]))
        counts[key] += 1
    return found


def _info(traces: Sequence[Trace], name: str, hosts: Sequence[str], spans: Sequence[Span]) -> RunInfo:
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

"""Split one profiler trace into kernels, copies and operators: kind, label, stream, step and bytes of each."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reports.analysis.frames import COMPUTE, STEP
from reports.kineto.names import SEND_RECV, collective_kind, communicates, kernel_kind, operator_kind, verb_around
from reports.kineto.operators import KernelOrigin, Operators
from reports.kineto.steps import launches_of, outermost, step_number, steps_of
from reports.kineto.trace_file import ANNOTATION, COPIES, CPU_OP, KERNEL, Event, TraceFile, as_text, whole_number
from scenarios.seam.trace import Span

MAIN = "main"

_GLOO = re.compile(r"gloo:")
# Operators of torch around the launch of a collective.
_AROUND = re.compile(r"record_param_comms$|c10d::|_c10d_functional::|(?:nccl|gloo|ucc):")
_LARGEST = 2**53
# Fields of a span that are set once all traces are read.
_UNKNOWN: dict[str, Any] = {"host": 0, "sequence": 0, "wait_from_ns": -1, "wait_until_ns": -1}


class _IssuedEvent(NamedTuple):
    """The time `at_ns` (on the trace's axis) at which the CPU issued a kernel, and the annotation open at that time.

    `origin` is the annotation; `number` the number of times that it was opened earlier in the step, -1 without one.
    """

    at_ns: int
    origin: KernelOrigin = KernelOrigin()
    number: int = -1


_DTYPES = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8), "Int": ("int32", 4), "Short": ("int16", 2), "Char": ("int8", 1), "Byte": ("uint8", 1),
    "Bool": ("bool", 1), "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1), "Float8_e5m2": ("float8_e5m2", 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSpan(Span):
    """A span of a kernel, a memory operation or, in a trace without a GPU, of an outermost operator.

    `name` is the trace's, `label` the innermost annotation or module around its launch, else the outermost operator,
    else the name; in a backward pass that of its forward operator. `origin` has the details. Times are in ns on the
    run's axis. `step` is -1 outside any. `kernel` is the kind of a computation, "" for a communication. `call` counts a
    group's collectives; for a computation it is the opening of its label in the step that launched it.
    """

    name: str
    origin: KernelOrigin


def group_names(traces: Sequence[TraceFile]) -> Mapping[tuple[str, str], str]:
    """Return torch's name of each process group, with the group's ranks where several groups share a name."""
    found: dict[str, set[str]] = defaultdict(set)
    for trace in traces:
        comms = _comms(trace)
        for event in trace.events.get(KERNEL, []):
            name, ranks = _group_key(_with_parameters(event, comms) if communicates(event.name) else {})
            if name:
                found[name].add(ranks)
    return {
        (name, ranks): f"{name} {ranks}".strip() if len(found[name]) > 1 else name
        for name in found
        for ranks in found[name]
    }


def _comms(trace: TraceFile) -> dict[str, Mapping[str, Any]]:
    """Return torch's CPU record of each collective, by the number that its kernels carry, too."""
    events = (event for event in trace.events.get(CPU_OP, []) if event.name == "record_param_comms")
    return {str(event.args["External id"]): event.args for event in events if "External id" in event.args}


def _with_parameters(event: Event, comms: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return {**comms.get(str(event.args.get("External id")), {}), **event.args}


def _group_key(args: Mapping[str, Any]) -> tuple[str, str]:
    return as_text(args.get("Process Group Name", "")), as_text(args.get("Process Group Ranks", ""))


class TracePieces:
    """The spans and the steps of one trace, whose axis has the run's 0 at `origin_ns`."""

    def __init__(self, trace: TraceFile, origin_ns: int, groups: Mapping[tuple[str, str], str]) -> None:
        self._trace, self._origin_ns, self._groups = trace, origin_ns, groups
        self._comms = _comms(trace)
        self._steps = steps_of(trace)
        self._step_starts = [event.start_ns for event in self._steps]
        self._operators = Operators(trace)
        self.unsaid = 0  # SendRecv kernels for which no event states the collective
        self._around: dict[str, Mapping[str, Any]] = {}  # by correlation: arguments around a communication's launch
        self.pieces = self._of_gpu() if trace.on_gpu else self._of_cpu()

    def step_spans(self) -> list[Span]:
        """Return the steps' spans: from a step's first launched kernel to the end of the last, else its annotation."""
        origin, own = self._origin_ns, defaultdict(list)
        for piece in self.pieces:
            own[piece.step].append(piece)
        said: dict[int, list[Event]] = defaultdict(list)
        for event in self._steps:
            said[step_number(event)].append(event)
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
                    rank=self._trace.rank, step=step, kind=STEP, label="", group="", call=-1, stream=MAIN,
                    issued_ns=min([start, *first]), start_ns=start, end_ns=end, **_UNKNOWN,
                )
            )  # fmt: skip
        return found

    def _of_gpu(self) -> list[TracedSpan]:
        launches = launches_of(self._trace)
        events = [(event, category) for category in (KERNEL, *COPIES) for event in self._trace.events.get(category, [])]
        issues = [launches.get(str(event.args.get("correlation")), event) for event, _ in events]
        self._find_around(
            [(event, issue) for (event, _), issue in zip(events, issues, strict=True) if issue is not event]
        )
        computes = [self._verb(event, category) == COMPUTE for event, category in events]
        streams = _streams([(event, each) for (event, _), each in zip(events, computes, strict=True)])
        origins = [
            self._operators.origin(self._operators.innermost(issue, event.args), communicates=not each)
            for (event, _), issue, each in zip(events, issues, computes, strict=True)
        ]
        return [
            self._piece(event, category, launch, streams[_stream_key(event)])
            for (event, category), launch in zip(events, self._find_issues(issues, origins), strict=True)
        ]

    def _of_cpu(self) -> list[TracedSpan]:
        """Return the spans of the CPU: outermost operators, and collectives on gloo's threads."""
        events = outermost(self._trace.events.get(CPU_OP, []))
        origins = [self._operators.origin(self._operators.innermost(event, {})) for event in events]
        streams = _name_keys([(event.thread, event, True) for event in events])
        pieces = [
            self._piece(event, CPU_OP, launch, streams[event.thread])
            for event, launch in zip(events, self._find_issues(events, origins), strict=True)
        ]
        gloo = [event for event in self._trace.events.get(ANNOTATION, []) if _GLOO.match(event.name)]
        return pieces + [self._piece(event, ANNOTATION, _IssuedEvent(event.start_ns), "gloo") for event in gloo]

    def _find_issues(self, issues: Sequence[Event], origins: Sequence[KernelOrigin]) -> list[_IssuedEvent]:
        """Return for each event when and for what it was issued, and the index of its label's opening in the step."""
        steps = [self._step_of(issue.start_ns) for issue in issues]
        begun: dict[tuple[str, int], set[tuple[int, tuple[str, str]]]] = defaultdict(set)
        for origin, step in zip(origins, steps, strict=True):
            begun[origin.label, step].add(origin.opened)
        order = {(*key, each): number for key, all_of in begun.items() for number, each in enumerate(sorted(all_of))}
        return [
            _IssuedEvent(issue.start_ns, origin, order[origin.label, step, origin.opened] if origin.label else -1)
            for issue, origin, step in zip(issues, origins, steps, strict=True)
        ]

    def _piece(self, event: Event, category: str, launch: _IssuedEvent, stream: str) -> TracedSpan:
        kind = self._verb(event, category)
        kernel = ""
        if kind == COMPUTE:
            words = {CPU_OP: operator_kind, KERNEL: kernel_kind}.get(category)
            kernel = words(event.name) if words else "elementwise"
        start, end, issued = (time - self._origin_ns for time in (event.start_ns, event.end_ns, launch.at_ns))
        copied = float(whole_number(event.args.get("bytes"), _LARGEST) or 0) if category in COPIES else 0.0
        piece = TracedSpan(
            rank=self._trace.rank, step=self._step_of(launch.at_ns), stream=stream, name=event.name, kind=kind,
            kernel=kernel, label=launch.origin.label or event.name, origin=launch.origin, issued_ns=min(issued, start),
            group="", start_ns=start, end_ns=end, call=launch.number if kind == COMPUTE else -1, bytes_read=copied,
            bytes_written=copied, **_UNKNOWN,
        )  # fmt: skip
        return piece if kind == COMPUTE else self._communication(piece, event)

    def _verb(self, event: Event, category: str) -> str:
        if category == ANNOTATION:
            return collective_kind(event.name.partition(":")[2])
        if category != KERNEL or not communicates(event.name):
            return COMPUTE
        said = as_text(self._args(event).get("Collective name", ""))
        kind = collective_kind(said) if said else "collective"
        return collective_kind(event.name) if kind == "collective" else kind

    def _find_around(self, launched: Sequence[tuple[Event, Event]]) -> None:
        """Record what is around the launches of communications: torch's record of arguments, else a verb in a name."""
        own = [(event, issue) for event, issue in launched if communicates(event.name)]
        operators = [event for event in self._trace.events.get(CPU_OP, []) if _AROUND.match(event.name)]
        around = [*operators, *self._trace.events.get(ANNOTATION, [])]
        around.sort(key=lambda event: event.order)
        stacks = _enclosing(around, [issue for _, issue in own])
        for (event, _), stack in zip(own, stacks, strict=True):
            noted = next((one.args for one in reversed(stack) if "Collective name" in one.args), {})
            said = next(filter(None, (verb_around(one.name) for one in reversed(stack))), "")
            self._around[str(event.args.get("correlation"))] = noted or ({"Collective name": said} if said else {})

    def _args(self, event: Event) -> Mapping[str, Any]:
        """Return the facts about a communication: from around its launch, its CPU record, and its own arguments."""
        return {**self._around.get(str(event.args.get("correlation")), {}), **_with_parameters(event, self._comms)}

    def _communication(self, piece: TracedSpan, event: Event) -> TracedSpan:
        args = self._args(event)
        self.unsaid += bool(SEND_RECV.search(event.name)) and "Collective name" not in args
        said = as_text(args.get("dtype", ""))
        dtype, item_bytes = _DTYPES.get(said, (said.lower(), 0))
        elements = [whole_number(args.get(f"{way} msg nelems"), _LARGEST // 16) for way in ("In", "Out")]
        if not item_bytes or None in elements:
            none = 0 if piece.kind == "barrier" else -1
            group = self._groups.get(_group_key(args), "")
            return dataclasses.replace(piece, group=group, bytes_in=none, bytes_out=none, bytes_sent=none, dtype=dtype)
        into, out = ((count or 0) * item_bytes for count in elements)
        into, out = 0 if piece.kind == "recv" else into, 0 if piece.kind == "send" else out
        size = whole_number(args.get("Group size"), 2**31) or 0
        kept = into // size if size and piece.kind == "all_to_all_single" else 0
        group = self._groups.get(_group_key(args), "")
        return dataclasses.replace(
            piece, group=group, bytes_in=into, bytes_out=out, bytes_sent=into - kept, dtype=dtype
        )

    def _step_of(self, moment_ns: int) -> int:
        if not self._steps:
            return 0
        at = bisect_right(self._step_starts, moment_ns) - 1
        return step_number(self._steps[at]) if at >= 0 and moment_ns <= self._steps[at].end_ns else -1


def _enclosing(annotations: Sequence[Event], issues: Sequence[Event]) -> list[list[Event]]:
    """Return for each event its thread's annotations open at its start, the innermost last."""
    by_thread: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in annotations:
        by_thread[event.thread].append(event)  # sorted by start, enclosing annotations first
    found: list[list[Event]] = [[] for _ in issues]
    open_now: dict[tuple[str, str], list[Event]] = defaultdict(list)
    begun: Counter[tuple[str, str]] = Counter()
    for at in sorted(range(len(issues)), key=lambda at: issues[at].start_ns):
        thread, moment = issues[at].thread, issues[at].start_ns
        listed, stack = by_thread.get(thread, []), open_now[thread]
        while begun[thread] < len(listed) and listed[begun[thread]].start_ns <= moment:
            stack.append(listed[begun[thread]])
            begun[thread] += 1
        stack[:] = [one for one in stack if one.end_ns >= moment]
        found[at] = [*stack]
    return found


def _stream_key(event: Event) -> tuple[str, str]:
    return str(event.args.get("device", "")), str(event.args.get("stream", event.thread[1]))


def _streams(events: Sequence[tuple[Event, bool]]) -> dict[tuple[str, str], str]:
    """Return the streams' names; main is the one with most computation, because collectives' streams also wait."""
    several = len({_stream_key(event)[0] for event, _ in events}) > 1
    named = _name_keys([(_stream_key(event), event, computes) for event, computes in events])
    return {key: f"{key[0]}:{name}" if several and name != MAIN else name for key, name in named.items()}


def _name_keys(events: Sequence[tuple[tuple[str, str], Event, bool]]) -> dict[tuple[str, str], str]:
    """Return the second half of each key; `MAIN` for the key with most computation, in ties with most time."""
    times: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for key, event, computes in events:
        took = event.end_ns - event.start_ns
        times[key][0] += took * computes
        times[key][1] += took
    return {key: key[1] for key in times} | {max(sorted(times), key=lambda key: times[key]): MAIN}

"""Write one step of a run as Chakra execution traces, one file per rank, for ASTRA-sim and program 'chakra'.

A node depends on what its rank had waited for when the node began, on the computation before it on its stream, on the
call before it in its group, and on GPUs on the host's time until it was issued. A run keeps neither the other ends of
messages nor how calls are split: its recording has both.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from reports.analysis.prediction.uncertainty import on_gpus
from reports.analysis.step_breakdown import step_shown
from reports.errors import ReportError
from reports.run import Run
from reports.store.drafts import whole_folder
from scenarios.seam.errors import ProgramError, tell_error
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.workloads.chakra.nodes import (
    COLLECTIVE,
    COMM_TYPES,
    COMPUTE,
    METADATA,
    RECV,
    ROOTS,
    SEND,
    SPLITS,
    TraceNode,
    Value,
    write,
)
from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.file import NAME as FILE
from scenarios.workloads.recording.file import read_any
from scenarios.workloads.recording.recorded import SCRIPT, Recorded

NAME, GROUPS = "step", "groups.json"
_COLUMNS = ["rank", "rank_count", "stream", "step", "sequence", "kind", "label", "group", "issued_ns", "start_ns"]
_COLUMNS += ["end_ns", "wait_until_ns", "bytes_in", "bytes_out", "bytes_sent", "dtype", "flops", "bytes_read"]
_COLUMNS += ["bytes_written"]
# Chakra's types for torch's verbs; other verbs are no collectives of a group.
_TYPES = {
    **dict.fromkeys(("all_reduce", "all_reduce_coalesced"), "ALL_REDUCE"),
    "reduce": "REDUCE",
    **dict.fromkeys(("all_gather", "all_gather_coalesced"), "ALL_GATHER"),
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_into_tensor_coalesced"), "ALL_GATHER"),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"), "REDUCE_SCATTER"),
    **{"gather": "GATHER", "scatter": "SCATTER", "broadcast": "BROADCAST"},
    **dict.fromkeys(("all_to_all", "all_to_all_single"), "ALL_TO_ALL"),
    **dict.fromkeys(("barrier", "monitored_barrier"), "BARRIER"),
}
# Chakra's types of messages, and where they name the other end.
_MESSAGES = {"send": (SEND, "comm_dst"), "recv": (RECV, "comm_src")}


def write_traces(run: Run, folder: Path, step: int | None, recorded: Recorded | None = None) -> int:
    """Write a step of a run, a typical one by default, and its groups into a new folder; return the step's number.

    `recorded` is the run's recording, if it has one.

    Raises:
        ReportError: the run has no such step or the spans of some ranks alone, the step sends messages without a
            recording of the run, or some ranks represent others.
    """
    number = step_shown(run, step)
    if number is None:
        raise ReportError("the run has no step whose spans were kept; expected one to write as execution traces")
    thinned = run.info.thinned
    if thinned is not None and thinned.ranks is not None and len(thinned.ranks) < run.info.world_size:
        raise ReportError("the run kept the spans of some ranks alone; expected one with --keep-ranks all")
    # Ranks that make no such step have a trace, too.
    ranks = {rank: list[Any]() for rank in range(run.info.world_size)}
    ranks |= _spans(run, number, with_messages=recorded is not None)
    begin_ns = {rank: each.pop(0).start_ns if each else 0 for rank, each in ranks.items()}
    groups = _groups(ranks)
    with whole_folder(folder) as partial:
        for rank, spans in ranks.items():
            calls = {} if recorded is None else _ends(recorded, rank, number, spans)
            nodes = _nodes(spans, begin_ns[rank], groups, calls, has_host=on_gpus(run))
            write(nodes, partial / f"{NAME}.{rank}.et")
        members = {name: each.ranks for name, each in groups.items()}
        (partial / GROUPS).write_text(json.dumps(members, indent=1) + "\n", encoding="utf-8")
    return number


def recording_of(folder: Path) -> Recorded | None:
    """Return the recording in a run's folder; None if there is none.

    Raises:
        ReportError: the recording cannot be read.
    """
    if not (folder / FILE).is_file():
        return None
    try:
        return read_any(folder / FILE, "program")
    except ValueError as error:
        raise ReportError(f"{folder}: expected {error}") from None


class _Members(NamedTuple):
    """The ranks that call in a group, and the roots of those calls that have one, by their number in the step."""

    ranks: Sequence[int]
    roots: Mapping[int, int]


class _RecordedEnds(NamedTuple):
    """The rank at the other end of a recorded message, and the splits of a recorded call."""

    peer: int | None
    splits: dict[str, Value]


def _spans(run: Run, step: int, *, with_messages: bool) -> Iterator[tuple[int, list[Any]]]:
    """Yield each rank's spans of the step in the order of their issue, the step's own first."""
    for part in run.parts(_COLUMNS, [step], beside=False):
        own = part.spans.assign(is_inside=part.spans["kind"] != "step")
        _check(own, {*_TYPES, *(_MESSAGES if with_messages else ())})
        own = own.sort_values(["rank", "is_inside", "issued_ns", "start_ns", "sequence"], kind="stable")
        for rank, spans in own.groupby("rank", sort=True):
            yield int(str(rank)), [*spans.itertuples(index=False)]


def _check(spans: Any, calls: Set[str]) -> None:
    if (spans["rank_count"] > 1).any():
        raise ReportError("some ranks of the run stand for others; expected one of run.ranks = 'each', a trace a rank")
    unknown = sorted({*spans["kind"]} - {"step", "compute", *calls})
    if unknown:
        raise ReportError(
            f"the step has {' and '.join(unknown)}, and a run does not keep to whom; expected one of"
            " `python -m sim --record`"
        )


def _groups(ranks: Mapping[int, Sequence[Any]]) -> dict[str, _Members]:
    members, roots = defaultdict[str, dict[int, None]](dict), defaultdict[str, dict[int, int]](dict)
    for rank, spans in sorted(ranks.items()):
        counts = Counter[str]()
        for span in spans:
            if span.group and span.kind in _TYPES:
                members[span.group][rank] = None
                # Of all members the root alone gives something, or gets something.
                if (end := ROOTS.get(_TYPES[span.kind])) and (span.bytes_in if end == "comm_src" else span.bytes_out):
                    roots[span.group][counts[span.group]] = rank
                counts[span.group] += 1
    return {name: _Members([*each], roots[name]) for name, each in members.items()}


def _nodes(
    spans: Sequence[Any],
    first_ns: int,
    groups: Mapping[str, _Members],
    calls: Mapping[tuple[str, int], _RecordedEnds],
    *,
    has_host: bool,
) -> Iterator[TraceNode]:
    """Yield a rank's nodes: span n is node 2n; it follows node 2n - 1 if its host was late to issue it on a GPU."""
    if not spans:  # of a rank that does nothing: a trace has a node
        yield TraceNode(id=0, type=METADATA)
    issued, counts = defaultdict[str, list[int]](list), Counter[str]()  # by stream and by group, in order
    host, host_ns = tuple[int, ...](), first_ns  # its last node, as one thread issues one by one, and that node's end
    for number, span in enumerate(spans, 1):
        peer, splits = calls.get((span.stream, span.sequence), _RecordedEnds(None, {}))
        line = f"group {span.group}" if span.group else f"stream {span.stream}"
        own = issued[line if peer is None else f"{line} {span.kind} {peer}"]
        before = {
            *own[-1:],
            *issued[f"stream {span.stream}"][-1:],
            *_last_awaited(spans, issued.values(), span.start_ns),
        }
        own.append(number)
        ready_ns = max((spans[each - 1].end_ns for each in before), default=first_ns)
        deps = tuple(2 * each for each in sorted(before))
        if has_host and span.start_ns > ready_ns:
            deps += host
            if span.start_ns > max(ready_ns, host_ns):
                times = max(ready_ns, host_ns), span.start_ns
                yield _node(2 * number - 1, "host", COMPUTE, deps, times, first_ns, {"is_cpu_op": True})
                host, host_ns = (2 * number - 1,), span.start_ns
                deps += host
        if span.kind in _MESSAGES:
            kind, attributes = _of_message(span, peer)
        elif span.group:
            kind, root = COLLECTIVE, groups[span.group].roots.get(counts[span.group])
            attributes = _of_call(span, root) | splits
            counts[span.group] += 1
        else:
            kind, attributes = COMPUTE, _of_computation(span)
        yield _node(2 * number, span.label, kind, deps, (span.start_ns, span.end_ns), first_ns, attributes)


def _last_awaited(spans: Sequence[Any], lines: Iterable[Sequence[int]], now_ns: int) -> Iterator[int]:
    """Yield the last span that the rank had awaited by `now_ns`, for each line (a stream's or a group's spans).

    Earlier spans of a line are over, too.
    """
    for numbers in lines:
        yield from islice((each for each in reversed(numbers) if 0 <= spans[each - 1].wait_until_ns <= now_ns), 1)


def _node(
    number: int,
    name: str,
    kind: int,
    deps: tuple[int, ...],
    times: tuple[int, int],
    first_ns: int,
    attributes: Mapping[str, Value],
) -> TraceNode:
    """Return a node that runs between two `times`, of a step that begins at `first_ns`."""
    start_ns, end_ns = times
    return TraceNode(
        id=number,
        name=name,
        type=kind,
        deps=deps,
        start_ns=start_ns - first_ns,
        duration_ns=end_ns - start_ns,
        attributes=attributes,
    )


def _of_computation(span: Any) -> dict[str, Value]:
    size_bytes = round(span.bytes_read + span.bytes_written)
    priced = {"num_ops": round(span.flops), "tensor_size": size_bytes} if span.flops or size_bytes else {}
    return {"is_cpu_op": False, "stream": span.stream, **priced}


def _of_call(span: Any, root: int | None) -> dict[str, Value]:
    kind = _TYPES[span.kind]
    size_bytes = span.bytes_out if kind == "SCATTER" or (kind == "BROADCAST" and not span.bytes_in) else span.bytes_in
    return {
        "is_cpu_op": False,
        "comm_type": COMM_TYPES.index(kind),
        "comm_size": int(size_bytes),
        "pg_name": span.group,
        **({"comm_dtype": span.dtype} if span.dtype in ELEMENT_BYTES else {}),
        **({ROOTS[kind]: root} if root is not None else {}),
    }


def _of_message(span: Any, peer: int | None) -> tuple[int, dict[str, Value]]:
    if peer is None:
        raise ReportError(f"rank {span.rank}: {span.label}: expected it in the run's recording")
    kind, end = _MESSAGES[span.kind]
    size_bytes = int(span.bytes_in + span.bytes_out)  # one of which is 0
    return kind, {"is_cpu_op": False, end: peer, "comm_size": size_bytes, "comm_tag": 0}


def _ends(recorded: Recorded, rank: int, step: int, spans: Sequence[Any]) -> Mapping[tuple[str, int], _RecordedEnds]:
    """Return what a recording has of a rank's calls, by stream and sequence.

    Raises:
        ReportError: the recording is damaged, or one of another run.
    """
    try:
        found = _calls(recorded, rank, step, spans)
        return {place: _RecordedEnds(_peer(call), _splits(call)) for place, call in found.items()}
    except (ArithmeticError, AttributeError, LookupError, ProgramError, TypeError, ValueError) as error:
        raise ReportError(
            f"{FILE}: expected the recording of the run, as it was written: {tell_error(error)}"
        ) from None


def _calls(recorded: Recorded, rank: int, step: int, spans: Sequence[Any]) -> Mapping[tuple[str, int], IssueCall]:
    """Return a rank's recorded calls by stream and sequence; of a script those of the step, if all its spans are."""
    from scenarios.workloads.recording.tasks import calls_of
    from scenarios.workloads.script.recording.replay import script_calls_of

    if recorded.program != SCRIPT:
        return calls_of(recorded, rank)
    found = dict[tuple[str, int], IssueCall]()
    for number, calls in script_calls_of(recorded, rank, step).items():
        stream = f"stream {number}" if number else "main"
        own = sorted((each for each in spans if each.stream == stream and each.group), key=lambda each: each.sequence)
        if [each.kind for each in own] == [each.verb for each in calls]:
            found |= {(stream, each.sequence): call for each, call in zip(own, calls, strict=True)}
    return found


def _peer(call: IssueCall) -> int | None:
    """Return the rank at the other end of a message; None for other calls."""
    return int(call.options["dst" if call.verb == "send" else "src"]) if call.verb in _MESSAGES else None


def _splits(call: IssueCall) -> dict[str, Value]:
    """Return the bytes of the input that each member gets, where they are not equal."""
    found: list[int] = []
    if call.verb == "all_to_all_single":
        (rows,) = call.inputs
        row_bytes = rows.dtype.itemsize * prod(rows.shape[1:])
        found = [row_bytes * int(each) for each in call.options.get("input_split_sizes", ())]
    elif call.verb in ("all_to_all", "reduce_scatter"):
        found = [each.dtype.itemsize * prod(each.shape) for each in call.inputs]
    return {SPLITS: found} if len(set(found)) > 1 else {}

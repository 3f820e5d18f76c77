"""Writes one step of a run as Chakra execution traces, a file a rank, which ASTRA-sim and program 'chakra' play.

A node waits for what its rank had waited for when the node began, for the computation before it on its stream, and for
the call before it in its group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reports.analysis.step_breakdown import step_shown
from reports.errors import ReportError
from reports.run import Run
from reports.store.drafts import whole_folder
from scenarios.workloads.chakra.nodes import COLLECTIVE, COMM_TYPES, COMPUTE, Node, Value, write

NAME, GROUPS = "step", "groups.json"
_COLUMNS = ["rank", "rank_count", "stream", "step", "sequence", "kind", "label", "group", "issued_ns", "start_ns"]
_COLUMNS += ["end_ns", "wait_until_ns", "bytes_in", "bytes_out", "bytes_sent", "dtype", "flops", "bytes_read"]
_COLUMNS += ["bytes_written"]
# Chakra's words for torch's verbs; others are no collectives of a group.
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


def write_traces(run: Run, folder: Path, step: int | None) -> int:
    """Write a step of a run, a typical one by default, and its groups into a new folder; return which step it is.

    Raises:
        ReportError: the run has no such step, the step sends messages, or some ranks stand for others.
    """
    number = step_shown(run, step)
    if number is None:
        raise ReportError("the run has no step whose spans were kept; expected one to write as execution traces")
    ranks = {rank: [*each] for rank, each in _spans(run, number)}
    groups = _groups(ranks)
    with whole_folder(folder) as partial:
        for rank, spans in ranks.items():
            write(_nodes(spans, groups), partial / f"{NAME}.{rank}.et")
        members = {name: each.ranks for name, each in groups.items()}
        (partial / GROUPS).write_text(json.dumps(members, indent=1) + "\n", encoding="utf-8")
    return number


class _Members(NamedTuple):
    """The ranks that call in a group, and the root of each of its broadcasts by their number in the step."""

    ranks: Sequence[int]
    roots: Mapping[int, int]


def _spans(run: Run, step: int) -> Iterator[tuple[int, Iterator[Any]]]:
    """Yield each rank's spans of the step in the order of their issue."""
    for part in run.parts(_COLUMNS, [step], beside=False):
        own = part.spans[part.own]
        own = own[own["kind"] != "step"].sort_values(["rank", "issued_ns", "start_ns", "sequence"], kind="stable")
        _check(own)
        for rank, spans in own[_COLUMNS].groupby("rank", sort=True):
            yield int(str(rank)), spans.itertuples(index=False)


def _check(spans: Any) -> None:
    if (spans["rank_count"] > 1).any():
        raise ReportError("some ranks of the run stand for others; expected one of run.ranks = 'each', a trace a rank")
    unknown = sorted({*spans["kind"]} - {"compute", *_TYPES})
    if unknown:
        raise ReportError(
            f"the step has {' and '.join(unknown)}, and a run does not keep to whom; expected computations and"
            " collectives of groups"
        )


def _groups(ranks: Mapping[int, Sequence[Any]]) -> dict[str, _Members]:
    members, roots = defaultdict[str, dict[int, None]](dict), defaultdict[str, dict[int, int]](dict)
    for rank, spans in sorted(ranks.items()):
        counts = defaultdict[str, int](int)
        for span in spans:
            if span.group:
                members[span.group][rank] = None
                if span.kind == "broadcast" and span.bytes_sent:
                    roots[span.group][counts[span.group]] = rank
                counts[span.group] += 1
    return {name: _Members([*each], roots[name]) for name, each in members.items()}


def _nodes(spans: Sequence[Any], groups: Mapping[str, _Members]) -> Iterator[Node]:
    """Yield a rank's nodes; ids count from 1, as 0 is what a reader takes for none."""
    first_ns = min((span.start_ns for span in spans), default=0)
    awaited = sorted((span.wait_until_ns, number) for number, span in enumerate(spans, 1) if span.wait_until_ns >= 0)
    last, counts = dict[str, int](), defaultdict[str, int](int)
    for number, span in enumerate(spans, 1):
        stream, group = f"stream {span.stream}", f"group {span.group}"
        before = {last[each] for each in (stream, group) if each in last}
        known = _latest(spans, [each for until_ns, each in awaited if until_ns <= span.start_ns and each < number])
        deps = tuple(sorted(before | known))
        if span.group:
            root = groups[span.group].roots.get(counts[span.group])
            counts[span.group] += 1
            yield _call(number, span, deps, first_ns, root)
            last[group] = number
        else:
            yield _computation(number, span, deps, first_ns)
            last[stream] = number


def _latest(spans: Sequence[Any], numbers: Sequence[int]) -> set[int]:
    """Return of each stream's computations and each group's calls the last one: those before it are over as well."""
    return set({(spans[each - 1].group or "", spans[each - 1].stream): each for each in sorted(numbers)}.values())


def _computation(number: int, span: Any, deps: tuple[int, ...], first_ns: int) -> Node:
    attributes: dict[str, Value] = {"is_cpu_op": False, "stream": span.stream}
    size_bytes = round(span.bytes_read + span.bytes_written)
    if span.flops or size_bytes:
        attributes |= {"num_ops": round(span.flops), "tensor_size": size_bytes}
    return Node(
        id=number,
        name=span.label,
        type=COMPUTE,
        deps=deps,
        start_ns=span.start_ns - first_ns,
        duration_ns=span.end_ns - span.start_ns,
        attributes=attributes,
    )


def _call(number: int, span: Any, deps: tuple[int, ...], first_ns: int, root: int | None) -> Node:
    kind = _TYPES[span.kind]
    attributes: dict[str, Value] = {
        "is_cpu_op": False,
        "comm_type": COMM_TYPES.index(kind),
        "comm_size": int(span.bytes_out if kind == "SCATTER" else span.bytes_in),
        "pg_name": span.group,
    }
    if span.dtype:
        attributes["comm_dtype"] = span.dtype
    if root is not None:
        attributes["comm_src"] = root
    return Node(
        id=number,
        name=span.label,
        type=COLLECTIVE,
        deps=deps,
        start_ns=span.start_ns - first_ns,
        duration_ns=span.end_ns - span.start_ns,
        attributes=attributes,
    )

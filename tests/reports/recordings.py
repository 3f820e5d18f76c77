"""Recordings made by hand with known answers, and strategies for random ones; used by the tests of this room."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import pandas as pd
from hypothesis import strategies as st

from scenarios.seam.memory import ACTIVATIONS, TABLES
from scenarios.seam.trace import (
    ChangeRow,
    KernelRow,
    LayerRow,
    LinkRow,
    LoadRow,
    MemoryRow,
    Metric,
    PlanRow,
    Recording,
    RunInfo,
    Span,
    Thinned,
    TrafficRow,
)
from tests.lanes import examples

# pandas takes its time on a machine that is busy
PATIENT = examples(25)

SCENARIO: dict[str, Any] = {
    "name": "by_hand",
    "path": "by_hand.toml",
    "cluster": {"hosts": 2, "host": {"gpus": 1}},
    "batch_size": 64,
    "payload": "values",
    "fidelity": "flows",
    "library": "gloo",
    "model": {"tables": [{"name": "t0", "rows": 10}, {"name": "t1", "rows": 20}]},
}


def info(**changes: Any) -> RunInfo:
    known: dict[str, Any] = {
        "name": "by_hand",
        "world": "sim",
        "digest": "d1",
        "scenario": SCENARIO,
        "seed": 7,
        "world_size": 2,
        "started": "2026-01-02T03:04:05",
        "versions": {"python": "3.11"},
        "hosts": ("host-a", "host-b"),
    }
    return RunInfo(**{**known, **changes})


T = TypeVar("T")


def rows_as(kind: Callable[..., T], frame: pd.DataFrame) -> list[T]:
    """Return a frame's rows as values of the class that its columns are the fields of."""
    return [kind(**{str(key): value for key, value in row.items()}) for row in frame.to_dict("records")]


def span(rank: int, kind: str, start: int, end: int, **changes: Any) -> Span:
    """Return a span that was issued when it started, and awaited from then to its end; step 0, stream main."""
    known: dict[str, Any] = {
        "rank": rank,
        "host": rank,
        "stream": "main",
        "step": 0,
        "sequence": 0,
        "kind": kind,
        "label": "",
        "group": "",
        "call": -1,
        "issued_ns": start,
        "start_ns": start,
        "end_ns": end,
        "wait_from_ns": start,
        "wait_until_ns": end,
    }
    return Span(**{**known, **changes})


def step_of(shift: int, step: int, compressed: bool) -> list[Span]:
    """Return one step of two ranks, 100 ns long.

    Rank 0 computes "forward" 0-40, issues all_reduce "gradients" at 40, computes "backward" 40-70 and waits for the
    gradients until 95. Rank 1 computes "forward" 0-60 and enters the all_reduce at 60, which ends on both at 95.
    Rank 0 ends at 95, rank 1 updates 95-100.
    """
    label = "compressed gradients" if compressed else "gradients"

    def at(rank: int, kind: str, start: int, end: int, **changes: Any) -> Span:
        moved = {name: value + shift for name, value in changes.items() if name.endswith("_ns")}
        return span(rank, kind, start + shift, end + shift, **{"step": step, **changes, **moved})

    sent = {
        "role": "reduction",
        "group": "world",
        "call": step,
        "bytes_in": 1000,
        "bytes_out": 1000,
        "bytes_sent": 1000,
        "dtype": "float32",
    }
    first = step * 10
    return [
        at(0, "step", 0, 95, sequence=first),
        at(0, "compute", 0, 40, label="forward", sequence=first + 1, kernel="gemm"),
        at(0, "all_reduce", 40, 95, label=label, sequence=first + 2, wait_from_ns=70, wait_until_ns=95, **sent),
        at(0, "compute", 40, 70, label="backward", sequence=first + 3, kernel="gemm"),
        at(1, "step", 0, 100, sequence=first),
        at(1, "compute", 0, 60, label="forward", sequence=first + 1, kernel="gemm"),
        at(1, "all_reduce", 60, 95, label=label, sequence=first + 2, **sent),
        at(1, "compute", 95, 100, label="update", sequence=first + 3, kernel="optimizer"),
    ]


def by_hand(**changes: Any) -> Recording:
    """Three steps on two hosts: one plain, two with compressed gradients; rank 1 carries table t1 alone."""

    def shard(table: str, rank: int, ids: float, perf_ms: float, storage_bytes: int) -> PlanRow:
        return PlanRow(
            table=table,
            sharding_type="table_wise",
            compute_kernel="fused",
            shard=0,
            rank=rank,
            row_offset=0,
            column_offset=0,
            rows=10,
            columns=4,
            storage_bytes=storage_bytes,
            perf_ms=perf_ms,
            ids_per_step=ids,
        )

    return Recording(
        info=info(**changes),
        spans=[one for step in range(3) for one in step_of(100 * step, step, compressed=step > 0)],
        metrics=[
            Metric(rank=rank, step=step, name="loss", value=0.7 - 0.1 * step) for step in range(3) for rank in (0, 1)
        ],
        plan=[shard("t0", 0, 100.0, 1.0, 4096), shard("t1", 1, 300.0, 2.0, 8192)],
        memory=[
            MemoryRow(rank=0, part="embedding weights", size_bytes=4096, capacity_bytes=16384, kind=TABLES),
            MemoryRow(rank=1, part="embedding weights", size_bytes=8192, capacity_bytes=16384, kind=TABLES),
            MemoryRow(rank=1, part="activations", size_bytes=4096, capacity_bytes=16384, kind=ACTIVATIONS),
        ],
        links=[
            link("nic0", "nic", "out", 75.0, 60),
            link("nic1", "nic", "out", 150.0, 150),
            link("hbm0", "memory", "in", 30.0, 30),
        ],
    )


def link(name: str, link_class: str, direction: str, carried: float, busy_ns: int) -> LinkRow:
    """Return a link of one byte per ns."""
    return LinkRow(
        link=name,
        link_class=link_class,
        direction=direction,
        host=0,
        bytes_carried=carried,
        busy_ns=busy_ns,
        bytes_per_s=1e9,
    )


def with_loads(recording: Recording) -> Recording:
    """Return the recording with when its links carried what they carried, and between which hosts."""

    def load(name: str, direction: str, from_ns: int, until_ns: int, carried: float) -> LoadRow:
        return LoadRow(name, direction, from_ns, until_ns, carried)

    loads = [
        load("nic0", "out", 10, 60, 25.0),
        load("nic0", "out", 60, 160, 50.0),
        load("nic1", "out", 0, 100, 90.0),
        load("nic1", "out", 120, 200, 60.0),
        load("hbm0", "in", 5, 45, 30.0),
    ]
    traffic = [
        TrafficRow(from_host=0, to_host=0, bytes_carried=0.0, bytes_inside=30.0),
        TrafficRow(from_host=0, to_host=1, bytes_carried=75.0, bytes_inside=0.0),
        TrafficRow(from_host=1, to_host=0, bytes_carried=150.0, bytes_inside=0.0),
    ]
    return dataclasses.replace(recording, loads=loads, traffic=traffic)


def with_changes(recording: Recording) -> Recording:
    """Return the recording as if its step had been played anew on GPUs twice as fast, and could not be on twice the
    hosts.
    """
    known: dict[str, Any] = {"samples_per_s": 0.0, "transfer_ns": 30.0, "wait_ns": 5.0}
    failed: dict[str, Any] = {
        "samples_per_s": 0.0,
        "transfer_ns": 0.0,
        "wait_ns": 0.0,
        "step_ns": 0.0,
        "sentence": "it has two",
    }
    rows = [
        ChangeRow(change="as it is", options="", status="done", sentence="", step_ns=100.0, **known),
        ChangeRow(change="twice the hosts", options="--set cluster.hosts=4", status="scenario error", **failed),
        ChangeRow(change="GPUs twice as fast", options="--set a=2", status="done", sentence="", step_ns=80.0, **known),
    ]
    rows = [dataclasses.replace(row, group="" if row.change == "as it is" else "hardware") for row in rows]
    return dataclasses.replace(recording, what_if=rows)


def with_kernels(recording: Recording, count: int = 2) -> Recording:
    """Return the recording as if its first rank had run so many kernels of 10 us: the first by a roofline, the others
    by a law.
    """
    known: dict[str, Any] = {"predicted_us": 10.0, "count": 2.0, "share": 1 / count}
    rows = [
        KernelRow(operator="mm", shapes=f"{at}x8 x 8, float32", priced_by="law" if at else "roofline", **known)
        for at in range(count)
    ]
    return dataclasses.replace(recording, kernels=rows)


def with_layers(recording: Recording) -> Recording:
    """Return the recording as if three quarters of its passes were two equal cross layers, the rest a top layer."""
    shares = {"cross.0": 0.375, "cross.1": 0.375, "top.0": 0.25}
    rows = [
        LayerRow(label=label, layer=layer, operator="mm", shapes="0x8 x 8, float32", share=share)
        for label in ("forward", "backward")
        for layer, share in shares.items()
    ]
    return dataclasses.replace(recording, layers=rows)


def of_script(recording: Recording) -> Recording:
    """Return a recording as if our planner had put the tables of a script on the other ranks, and each had half a ms
    more to do.
    """
    own = [dataclasses.replace(row, rank=1 - row.rank, perf_ms=row.perf_ms + 0.5) for row in recording.plan]
    notes = ("64 samples per rank", "ours may choose among table_wise")
    return dataclasses.replace(recording, own_plan=own, info=dataclasses.replace(recording.info, plan_notes=notes))


def on_nccl(recording: Recording, formula_ns: int) -> Recording:
    """Return a recording as if NCCL had expected each all_reduce to take this long."""
    spans = [
        dataclasses.replace(one, formula_ns=formula_ns) if one.kind == "all_reduce" else one for one in recording.spans
    ]
    return with_spans(recording, *spans)


def with_spans(recording: Recording, *spans: Span) -> Recording:
    return dataclasses.replace(recording, spans=list(spans))


def thin(**changes: Any) -> Recording:
    """Return `by_hand` with only what rank 1 did in steps 1 and 2."""
    known: dict[str, Any] = {"ranks": (1,), "steps": (1, 2), "left_out": 12, "phases": (1,)}
    kept = [one for one in by_hand().spans if one.kind == "step" or (one.rank == 1 and one.step in (1, 2))]
    return with_spans(by_hand(thinned=Thinned(**{**known, **changes})), *kept)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Draw any spans: overlapping, of zero length, with waits before and after the end, members missing or late."""
    count = draw(st.integers(0, 30))
    moments = st.integers(0, 60)
    spans = []
    for sequence in range(count):
        issued, wait, start, length, waited = (draw(moments) for _ in range(5))
        kind = draw(st.sampled_from(["compute", "all_reduce", "all_to_all_single", "send"]))
        spans.append(
            span(
                draw(st.integers(0, 2)),
                kind,
                issued + start,
                issued + start + length,
                issued_ns=issued,
                wait_from_ns=draw(st.sampled_from([-1, wait])),
                wait_until_ns=wait + waited,
                step=draw(st.integers(-1, 2)),
                sequence=sequence,
                stream=draw(st.sampled_from(["main", "side"])),
                label=draw(st.sampled_from(["", "a", "[b]"])),
                group="world" if kind.startswith("all") else "",
                call=draw(st.integers(0, 3)) if kind.startswith("all") else -1,
                bytes_sent=draw(st.integers(0, 100)),
                formula_ns=draw(st.sampled_from([-1, 20])) if kind == "all_reduce" else -1,
            )
        )
    for rank in range(3):
        for step in range(draw(st.integers(0, 3))):
            start = draw(moments)
            spans.append(span(rank, "step", start, start + draw(moments), step=step, sequence=100 + step))
    return Recording(info=info(world_size=3, hosts=("a", "b", "c")), spans=spans)

"""Laws of a profiler's trace: what holds whatever its events are."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.kineto import recording as kineto
from reports.kineto import tables as kineto_tables
from reports.kineto.recording import Profile
from tests.reports.kineto.events import event, kernel, launch, spans
from tests.reports.recordings import PATIENT

_MOMENTS = st.integers(0, 50_000).map(lambda ns: ns / 1000)


@st.composite
def _events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw any kernels, launched or not, under any annotations, in steps or not."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(["gemm", "copy", "ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_SendRecv"]))
        about = {"Process Group Name": "0", "In msg nelems": draw(st.integers(0, 9)), "dtype": "Float"}
        stream = draw(st.sampled_from([7, 8, 20]))
        correlation = draw(st.integers(0, number))
        found.append(kernel(name, draw(_MOMENTS), draw(_MOMENTS), stream=stream, correlation=correlation, **about))
    found += [launch(draw(_MOMENTS), number, draw(st.integers(1, 2))) for number in range(draw(st.integers(0, 9)))]
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(["a", "b", "nccl:x", "ProfilerStep#1", "ProfilerStep#2"]))
        found.append(event("user_annotation", name, draw(_MOMENTS), draw(_MOMENTS), draw(st.integers(1, 2))))
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("laws") / "t.json"


def read_events(scratch: Path, events: list[dict[str, Any]]) -> Profile:
    scratch.write_text(json.dumps({"traceEvents": events}))
    return kineto.read([scratch], "r")


@PATIENT
@given(events=_events(), seed=st.integers(0, 99))
def test_the_order_of_events_does_not_matter(scratch, events, seed):
    shuffled = random.Random(seed).sample(events, len(events))
    assert read_events(scratch, shuffled).recording == read_events(scratch, events).recording


@PATIENT
@given(events=_events())
def test_every_kernels_time_is_kept_whole_in_one_span(scratch, events):
    found = read_events(scratch, events)
    kept = sum(s.end_ns - s.start_ns for s in found.recording.spans if s.kind != "step")
    assert kept == sum(round(e["dur"] * 1000) for e in events if e["cat"] == "kernel")
    assert all(s.issued_ns <= s.start_ns <= s.end_ns for s in found.recording.spans)


@PATIENT
@given(events=_events())
def test_a_step_holds_all_of_its_kernels(scratch, events):
    found = read_events(scratch, events)
    bounds = {s.step: (s.start_ns, s.end_ns) for s in spans(found, kind="step")}
    for span in found.recording.spans:
        if span.step >= 0:
            assert bounds[span.step][0] <= span.start_ns <= span.end_ns <= bounds[span.step][1]


@PATIENT
@given(events=_events())
def test_shares_of_kinds_and_of_labels_add_up_to_all_time_in_steps(scratch, events):
    found = read_events(scratch, events)
    inside = sum(p.end_ns - p.start_ns for p in found.pieces if p.step >= 0)
    for frame in kineto_tables.tables(found).values():
        assert frame["share"].sum() == pytest.approx(1 if inside else 0)


@PATIENT
@given(events=_events(), shift_us=st.integers(-1000, 10**12))
def test_when_a_trace_began_changes_nothing(scratch, events, shift_us):
    moved = [{**e, "ts": e["ts"] + shift_us} for e in events]
    there, here = read_events(scratch, moved), read_events(scratch, events)
    assert [(p.step, p.label, p.stream, p.kind) for p in there.pieces] == [
        (p.step, p.label, p.stream, p.kind) for p in here.pieces
    ]

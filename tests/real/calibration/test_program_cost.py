"""A program whose Python takes a known time: the fit finds it in gaps, in calls and in short kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from real.calibration.program_cost import alone, fit, scenario_of
from scenarios.seam.trace import Span
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.small import CORE, TCP, cluster, scenario

# Enough for a simulation, which is not noisy.
STEPS = 10


def play(**changes: Any) -> list[Span]:
    """Of the program on two hosts whose TCP costs so much; without any, of its kernels alone."""
    on = cluster(2, 1, gpu=CORE, cores=8, tcp=dataclasses.replace(TCP, **changes))
    given = scenario_of(scenario(on if changes else alone(on), library="gloo", payload="sizes"))
    given = given.with_run(steps=STEPS)
    return simulate(given, DlrmProgram(given)).spans


def test_the_program_has_kernels_calls_and_compression() -> None:
    spans = play()
    assert {span.step for span in spans if span.kind == "compute"} == set(range(STEPS))
    assert {span.label for span in spans} >= {"dense.forward.1", "powersgd.P", "table_row_wise.input_dist.splits"}


@pytest.mark.parametrize(("verb_ns", "cold_ns"), [(40_000, 100_000), (150_000, 300_000)])
def test_fit_recovers_the_cost_of_python(verb_ns: int, cold_ns: int) -> None:
    """From a recording of few steps, as nothing varies in it."""
    found = fit(TCP, play(verb_ns=verb_ns, cold_ns=cold_ns), play())
    assert found.verb_ns == pytest.approx(verb_ns, rel=0.15)
    assert found.cold_ns == pytest.approx(cold_ns, rel=0.15)


def test_extra_time_of_short_kernels_counts_as_the_verbs() -> None:
    """If a verb's time shows inside of the kernel and not before it, that changes nothing."""
    quick = play(verb_ns=40_000, cold_ns=0)
    slow = [dataclasses.replace(span, start_ns=span.start_ns - 30_000) if is_kernel(span) else span for span in quick]
    before, after = (fit(TCP, spans, play()).verb_ns for spans in (quick, slow))
    assert before == pytest.approx(40_000, rel=0.15)
    assert after == pytest.approx(before, rel=0.1)


def is_kernel(span: Span) -> bool:
    return span.kind == "compute"

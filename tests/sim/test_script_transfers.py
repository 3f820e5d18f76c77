"""Copies between the CPU and the GPU take the path to the host's memory, and of pageable memory the host's time."""

from __future__ import annotations

import pytest

from scenarios.config.host_costs import Eager
from scenarios.config.load import load_profile
from scenarios.seam.operations.products import product
from scenarios.seam.trace import Recording
from sim.engine.prices import Prices
from tests.sim.test_gpu_script import SCRIPTS, play_script, steps_ns

HOST = load_profile("dgx_h100").host
SIZE = 4 << 24
assert HOST.inside.host_bytes_per_s is not None
CROSSING_NS = 1e9 * SIZE / HOST.inside.host_bytes_per_s
STAGING_NS = 1e9 * 2 * SIZE / Eager().cpu_bytes_per_s
LONG_NS = 1e9 * Prices(HOST.gpu).seconds(product(4096, 4096, 4096, dtype="float32", element_bytes=4))
WAYS = (
    *("nothing", "pinned", "pinned, made so", "pinned, blocking", "pageable", "pageable, non_blocking", "few"),
    *("back", "back, non_blocking", "back to pinned", "back to pageable"),
)
SLACK_NS = 100_000  # launches, and what operators take to be dispatched


@pytest.fixture(scope="module")
def recording() -> Recording:
    return play_script(SCRIPTS / "transfers.py", ranks=(1, 2), steps=len(WAYS))


def longer_ns(recording: Recording, way: str) -> int:
    """Return how much longer the step is than one without a copy."""
    steps = steps_ns(recording)
    return steps[WAYS.index(way)] - steps[0]


@pytest.mark.parametrize("way", ["pinned", "pinned, made so", "back, non_blocking", "back to pinned"])
@pytest.mark.supports("copies between CPU and GPU, pinned and pageable", "GPUs")
def test_pinned_memory_crosses_while_the_host_goes_on(recording: Recording, way: str) -> None:
    """The copy is on the stream, behind the long kernel; launches hide behind both."""
    assert longer_ns(recording, way) == pytest.approx(CROSSING_NS, abs=SLACK_NS)


def test_the_host_waits_for_a_blocking_copy(recording: Recording) -> None:
    exposed_ns = longer_ns(recording, "pinned, blocking") - CROSSING_NS
    assert 0 < exposed_ns < 20 * 20_000  # launches of short kernels


@pytest.mark.parametrize("way", ["pageable", "pageable, non_blocking", "back", "back to pageable"])
def test_a_copy_of_pageable_memory_also_takes_host_time_after_its_wait(recording: Recording, way: str) -> None:
    assert longer_ns(recording, way) == pytest.approx(CROSSING_NS + STAGING_NS, abs=20 * 30_000)


def test_little_memory_is_not_waited_for(recording: Recording) -> None:
    assert 0 <= longer_ns(recording, "few") < SLACK_NS

"""What a TCP connection loses while its window grows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Scenario
from scenarios.seam.rank import Rank
from sim.engine.capacity import Capacity
from sim.engine.network import Path
from sim.engine.slow_start import SlowStart
from sim.run import simulate
from tests.small import Play, cluster, scenario

WINDOW, ROUND_TRIP_NS, PER_NS = 10_000.0, 1_000_000, 1.0  # a round trip carries 100 first windows


def over(window: float, round_trip_ns: int = ROUND_TRIP_NS) -> SlowStart:
    return SlowStart(window, Path((Capacity("link", 1e9 * PER_NS),), round_trip_ns // 2))


def lose(*sizes: float, window: float = WINDOW, now_ns: int = 0) -> list[int]:
    """Of messages sent one after the other."""
    slow_start = over(window)
    return [slow_start.lost_ns(size, now_ns) for size in sizes]


def test_the_first_window_loses_nothing_and_the_second_one_round_trip() -> None:
    assert lose(WINDOW) == [0]
    assert lose(3 * WINDOW) == [round(ROUND_TRIP_NS - 2 * WINDOW)]
    assert lose(7 * WINDOW) == [round(2 * ROUND_TRIP_NS - 6 * WINDOW)]


def test_a_wide_first_window_loses_nothing() -> None:
    assert lose(1e9, window=ROUND_TRIP_NS * PER_NS) == [0]


def test_a_fully_grown_window_loses_no_time() -> None:
    first, *others = lose(1e9, 1e9, 5.0)
    assert first == pytest.approx((math.log2(100 / math.log(2)) - 1 - 1 / math.log(2) + 0.02) * ROUND_TRIP_NS, rel=1e-3)
    assert others == [0, 0]


def test_slow_start_begins_anew_after_a_pause() -> None:
    slow_start = over(WINDOW)
    first = slow_start.lost_ns(1e6, 0)
    over_ns = first + 1_000_000
    assert slow_start.lost_ns(1e6, over_ns + 100_000_000) < first
    assert slow_start.lost_ns(1e6, 10**10) == first


@given(st.lists(st.floats(1, 1e7), min_size=1, max_size=20), st.floats(1, 1e6))
def test_a_message_in_pieces_loses_as_much_time_as_at_once(sizes: list[float], window: float) -> None:
    pieces = lose(*sizes, window=window)
    assert all(piece >= 0 for piece in pieces)
    assert sum(pieces) == pytest.approx(lose(sum(sizes), window=window)[0], abs=len(sizes))


def slow(library: str, *, gpu_kind: str = "cpu", **of: Any) -> Scenario:
    """Two hosts 5 ms apart at 1 GB/s, whose connections begin with 100 KB."""
    base = cluster(2, 1)
    link = dataclasses.replace(base.host.nics.link, bytes_per_s=1e9, latency_ns=2_500_000)
    nics = dataclasses.replace(base.host.nics, link=link, initial_window_bytes=100_000)
    on: Cluster = dataclasses.replace(base, host=dataclasses.replace(base.host, nics=nics), **of)
    return scenario(on, library=library)


def taken_ns(given_scenario: Scenario, size_bytes: int, calls: int = 1) -> list[int]:
    """Of sends from one host to the other, one after the other."""

    async def body(rank: Rank) -> None:
        for _ in range(calls):
            tensor = torch.zeros(size_bytes, dtype=torch.int8, device=rank.device)
            await (rank.send(tensor, 1) if rank.rank == 0 else rank.recv(tensor, 0))

    spans = [span for span in simulate(given_scenario, Play(body)).spans if span.kind == "recv"]
    return [span.end_ns - span.start_ns for span in spans]


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_only_the_first_message_between_hosts_is_delayed_by_slow_start(library: str) -> None:
    with_it = slow(library)
    nics = dataclasses.replace(with_it.cluster.host.nics, initial_window_bytes=None)
    host = dataclasses.replace(with_it.cluster.host, nics=nics)
    without = dataclasses.replace(with_it, cluster=dataclasses.replace(with_it.cluster, host=host))
    size = 50_000_000
    first, second = taken_ns(with_it, size, 2)
    plain, _ = taken_ns(without, size, 2)
    lost_ns = over(100_000, 10_000_000).lost_ns(size, 0)
    assert lost_ns > 20_000_000
    assert first - plain == pytest.approx(lost_ns, rel=0.02)
    assert second == pytest.approx(plain, rel=0.02)


def test_many_sockets_grow_together() -> None:
    one, many = (taken_ns(slow("nccl", nccl_sockets=sockets), 50_000_000)[0] for sockets in (1, 16))
    assert one - many == pytest.approx(
        over(100_000, 10_000_000).lost_ns(5e7, 0) - over(1_600_000, 10_000_000).lost_ns(5e7, 0),
        rel=0.05,
    )

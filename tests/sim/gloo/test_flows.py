"""gloo's messages in simulated time: what is sent, what waits behind what, and what that makes of a rate."""

from __future__ import annotations

import pytest
import torch

from scenarios.config.hardware import Link, Nics
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.engine import sharing
from sim.run import simulate
from tests.sim.collective_calls import issue
from tests.small import Play, cluster, scenario

# Two hosts at 200 Mbit/s as `tc tbf` shapes them, of which 1448 of 1514 bytes are payload.
SLOW = Nics(per="gpu", count=1, link=Link(bytes_per_s=25e6, latency_ns=50_000))
PAYLOAD_SHARE = 1448 / 1514
MIB = 1 << 20


def exchange_ms(hosts: int, size_bytes: int, late_s: float) -> float:
    """An even all-to-all over gloo, the last host entering `late_s` after the first; the longest rank's time in ms."""

    async def program(rank: Rank) -> None:
        late = Kernel(kind="wait", flops=1e13 * late_s * rank.rank / (hosts - 1))
        await rank.compute(late, int)
        tensor = torch.empty(size_bytes // 4, device="meta")
        await rank.all_to_all_single(torch.empty_like(tensor), tensor)

    on = cluster(hosts, 1, nics=SLOW, payload_share=PAYLOAD_SHARE)
    spans = simulate(scenario(on, payload="sizes"), Play(program)).spans
    return max(span.end_ns - span.start_ns for span in spans if span.kind == "all_to_all_single") / 1e6


@pytest.mark.parametrize(
    ("size_bytes", "late_s", "measured_ms"),
    [(32 * MIB, 0.0, 702), (32 * MIB, 1e-3, 1405), (2 * MIB, 0.0, 44), (2 * MIB, 1e-3, 87)],
)
def test_an_exchange_of_two_hosts_takes_the_wires_time_or_twice_that(
    size_bytes: int, late_s: float, measured_ms: float
) -> None:
    """Measured on two emulated hosts: 702 ms is the wire alone, 1405 and 87 were seen in most calls.

    A rank that enters later than a one-way latency finds its peer ready and sends at once; its own notice then waits
    behind that data, and the two directions run one after the other.
    """
    assert exchange_ms(2, size_bytes, late_s) == pytest.approx(measured_ms, rel=0.03)


@pytest.mark.parametrize("late_s", [0.0, 1e-3, 1e-2])
def test_messages_in_arrays_take_as_long_as_with_an_activity_each(
    monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """56 messages of eight hosts, as if more than 20 that share links went on in arrays."""
    single_ms = exchange_ms(8, 2 * MIB, late_s)
    monkeypatch.setattr(sharing, "MOST_SINGLE", 20)
    assert exchange_ms(8, 2 * MIB, late_s) == pytest.approx(single_ms, rel=1e-3)


def test_four_hosts_lose_less_to_waiting_notices() -> None:
    wire_ms = 3 / 4 * 2 * MIB / (25e6 * PAYLOAD_SHARE) * 1e3
    assert exchange_ms(4, 2 * MIB, 0.0) == pytest.approx(wire_ms, rel=0.01)
    assert 1.3 < exchange_ms(4, 2 * MIB, 1e-3) / wire_ms < 1.75


def play_alone(op: str, share: int, hosts: int) -> Recording:
    async def program(rank: Rank) -> None:
        await issue(rank, op, share)

    return simulate(scenario(cluster(hosts, 1), payload="sizes"), Play(program))


def test_links_carry_what_the_kernel_counted() -> None:
    """832 and 4,144 bytes: records of tests/vectors/data/gloo_wire_bytes.json for two ranks."""
    for op, share, carried in (("all_reduce", 32, 832), ("all_to_all", 1000, 4144)):
        rows = play_alone(op, share, 2).links
        assert {row.bytes_carried for row in rows if row.link_class == "nic"} == {carried}


def all_reduce_ends_ns(elements: int) -> list[int]:
    """When each of four hosts is through, after they began together."""

    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(elements, device="meta"))

    spans = simulate(scenario(cluster(4, 1), payload="sizes"), Play(program)).spans
    return [span.end_ns for span in spans if span.kind == "all_reduce"]


@pytest.mark.parametrize("elements", [8, 256, 4_000_000])
def test_ranks_of_a_ring_with_equal_segments_end_together(elements: int) -> None:
    assert len(set(all_reduce_ends_ns(elements))) == 1


def test_a_short_segment_lets_ranks_end_apart_by_its_missing_bytes() -> None:
    """250 elements are seven segments of 32 and one of 26."""
    whole, short = all_reduce_ends_ns(256), all_reduce_ends_ns(250)
    missing_ns = (256 - 250) * 4 / 1.25e9 * 1e9
    assert max(short) - min(short) == pytest.approx(missing_ns, abs=1)
    assert whole[0] - 2 * missing_ns - 2 <= min(short) < max(short) <= whole[0]


def test_a_single_element_goes_from_rank_to_rank() -> None:
    assert len(set(all_reduce_ends_ns(1))) == 4


def test_a_large_all_reduce_runs_at_the_rate_of_the_wire() -> None:
    ideal_ns = 2 * 3 / 4 * 16e6 / 1.25e9 * 1e9
    assert max(all_reduce_ends_ns(4_000_000)) == pytest.approx(ideal_ns, rel=0.02)

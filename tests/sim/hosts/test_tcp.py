"""gloo over TCP, segment by segment: bursts, queues, socket buffers, and the cores that all of it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from scenarios.config.hardware import Inside, Link, Nics
from scenarios.config.host_costs import Tcp
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Span
from sim.run import simulate
from tests.small import CORE, TCP, Play, cluster, scenario

KIB, MIB = 1 << 10, 1 << 20
RATE = 25e6  # bytes/s
# All that is not the wire takes no time, so that what remains can be counted by hand.
FREE = Tcp(
    queue_bytes=128 * KIB,
    send_buffer_bytes=MIB,
    acknowledged_share=0.0,
    send_bytes_per_s=1e15,
    receive_bytes_per_s=1e15,
    message_ns=0,
    post_ns=0,
    issue_ns=0,
    wake_ns=0,
)


def spans(
    hosts: int,
    program: Callable[[Rank], Coroutine[Any, Any, None]],
    tcp: Tcp = FREE,
    burst: int = 0,
    gpus: int = 1,
    draw: int = 0,
    **changes: Any,
) -> list[Span]:
    link = Link(bytes_per_s=RATE, latency_ns=10_000, burst_bytes=burst)
    inside = Inside(kind="memory", link=Link(bytes_per_s=2e9, latency_ns=20_000), bridge_bytes_per_s=4e9)
    on = cluster(hosts, gpus, nics=Nics(per="host", count=1, link=link), gpu=CORE, inside=inside, tcp=tcp, **changes)
    return simulate(scenario(on, payload="sizes"), Play(program), draw).spans


def empty(size_bytes: int) -> Tensor:
    return torch.empty(size_bytes // 4, device="meta")


def message(size_bytes: int) -> Callable[[Rank], Coroutine[Any, Any, None]]:
    """From rank 0 to rank 1."""

    async def program(rank: Rank) -> None:
        if rank.rank == 0:
            await rank.send(empty(size_bytes), 1)
        elif rank.rank == 1:
            await rank.recv(empty(size_bytes), 0)

    return program


def ends_ms(found: list[Span], kind: str) -> list[float]:
    return [span.end_ns / 1e6 for span in found if span.kind == kind]


def test_a_burst_passes_at_once_and_the_rest_at_the_links_rate() -> None:
    for size_bytes, burst in ((256 * KIB, 0), (256 * KIB, 16 * KIB), (256 * KIB, 64 * KIB), (16 * KIB, 64 * KIB)):
        (end_ms,) = ends_ms(spans(2, message(size_bytes), burst=burst), "recv")
        # A notice and the data take a latency each, and the switch holds a packet back until all of it is there.
        wire_ms = max(0, size_bytes - burst) / RATE * 1e3
        assert wire_ms <= end_ms - 0.04 <= wire_ms + 0.08, (size_bytes, burst)


def test_the_bucket_fills_again_in_the_pauses_alone() -> None:
    """64 KiB of burst take 2.6 ms to come back: at once after the first message there is none for the second."""

    def twice(pause_ms: float) -> float:
        async def program(rank: Rank) -> None:
            for _ in range(2):
                await message(64 * KIB)(rank)
                await rank.compute(Kernel(kind="wait", flops=pause_ms / 1e3 * CORE.flops_per_s["float32"]), int)

        second = [span for span in spans(2, program, burst=64 * KIB) if span.kind == "recv"][1]
        return (second.end_ns - second.start_ns) / 1e6

    assert twice(0.0) == pytest.approx(64 * KIB / RATE * 1e3, rel=0.05)
    assert twice(5.0) < 0.2


def test_a_send_is_over_when_the_socket_has_taken_it() -> None:
    small, large = (ends_ms(spans(2, message(size)), "send")[0] for size in (512 * KIB, 2 * MIB))
    assert small < 0.1
    assert large == pytest.approx(MIB / RATE * 1e3, rel=0.05)  # the last piece waits for a third of the buffer


def broadcast_ms(size_bytes: int) -> float:
    async def program(rank: Rank) -> None:
        await rank.broadcast(empty(size_bytes), 0)

    return max(ends_ms(spans(4, program), "broadcast"))


def test_a_message_that_fits_the_queue_is_not_shared_with_the_next() -> None:
    """The root of a broadcast sends to two: one after the other if the queue takes the first, else in turns.

    Measured on four emulated hosts at 200 Mbit/s: 64 KiB take two messages' time, 256 KiB three.
    """
    for size_bytes, messages in ((64 * KIB, 2), (256 * KIB, 3)):
        one_ms = size_bytes / RATE * 1e3
        assert broadcast_ms(size_bytes) / one_ms == pytest.approx(messages, rel=0.2 / messages), size_bytes


def all_to_all_ms(hosts: int, late_ns: int, draw: int = 0, tcp: Tcp = FREE) -> float:
    async def program(rank: Rank) -> None:
        late_flops = late_ns / 1e9 * rank.rank / (hosts - 1) * CORE.flops_per_s["float32"]
        await rank.compute(Kernel(kind="wait", flops=late_flops), int)
        await rank.all_to_all_single(empty(2 * MIB), empty(2 * MIB))

    found = [span for span in spans(hosts, program, tcp, draw=draw) if span.kind == "all_to_all_single"]
    return max(span.end_ns - span.start_ns for span in found) / 1e6


def test_an_exchange_of_two_hosts_takes_the_wires_time_or_twice_that() -> None:
    """A notice that was posted behind data waits for it, so the directions run one after the other."""
    wire_ms = MIB / RATE * 1e3
    assert all_to_all_ms(2, 0) == pytest.approx(wire_ms, rel=0.03)
    assert all_to_all_ms(2, 1_000_000) == pytest.approx(2 * wire_ms, rel=0.03)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("late_ns", "wires"), [(0, 1), (10_000, 1), (100_000, 1.5), (1_000_000, 1.5)])
def test_a_gather_of_two_hosts_takes_half_as_much_again_once_a_rank_is_later_than_a_notice(
    first: int, late_ns: int, wires: float
) -> None:
    """Measured on two emulated hosts: 44 ms where ranks post within 50 us of each other, 64 ms beyond 100 us.

    Of two halves, the later rank sends its first before its own notice, so that the other way begins half a time later.
    """

    async def program(rank: Rank) -> None:
        late_flops = late_ns / 1e9 * (rank.rank != first) * CORE.flops_per_s["float32"]
        await rank.compute(Kernel(kind="wait", flops=late_flops), int)
        await rank.all_gather_into_tensor(empty(2 * MIB), empty(MIB))

    taken = [span for span in spans(2, program) if span.kind == "all_gather_into_tensor"]
    taken_ms = (max(span.end_ns for span in taken) - min(span.start_ns for span in taken)) / 1e6
    assert taken_ms == pytest.approx(wires * MIB / RATE * 1e3 + late_ns / 1e6, rel=0.02)


def test_the_draws_show_both_outcomes() -> None:
    wire_ms = MIB / RATE * 1e3
    drawn = [all_to_all_ms(2, 0, draw, TCP) / wire_ms for draw in range(1, 30)]
    once, twice = ([one for one in drawn if low < one < low + 0.15] for low in (1.0, 1.95))
    assert len(once) + len(twice) == len(drawn), drawn
    assert once
    assert twice


def test_acknowledgements_take_of_the_other_direction() -> None:
    chatty = dataclasses.replace(FREE, acknowledged_share=0.05)
    assert all_to_all_ms(2, 0, tcp=chatty) == pytest.approx(1.05 * MIB / RATE * 1e3, rel=0.02)


def test_hosts_that_share_cores_slow_each_other() -> None:
    """Two kernels of 10 ms on one core, or on one each."""

    async def program(rank: Rank) -> None:
        await rank.compute(Kernel(kind="wait", flops=10e-3 * CORE.flops_per_s["float32"]), int)

    apart = spans(2, program, cores=1)
    together = spans(2, program, cores=1, hosts_share_cores=True)
    assert max(ends_ms(apart, "compute")) == pytest.approx(10)
    assert max(ends_ms(together, "compute")) == pytest.approx(20)


@pytest.mark.parametrize(("cores", "per_byte_s"), [(2, 1 / 5e8), (1, 1 / 1e9 + 1 / 5e8)])
def test_the_bytes_of_a_message_take_core_time_at_both_ends(cores: int, per_byte_s: float) -> None:
    """Inside a host nothing is shaped: 1 GB/s out and 0.5 GB/s in, side by side on two cores, in turns on one."""
    tcp = dataclasses.replace(FREE, send_bytes_per_s=1e9, receive_bytes_per_s=5e8, send_buffer_bytes=16 * MIB)
    (end_ms,) = ends_ms(spans(1, message(4 * MIB), tcp, gpus=2, cores=cores), "recv")
    assert end_ms == pytest.approx(4 * MIB * per_byte_s * 1e3, rel=0.02)


def barriers_ms(cores: int, **changes: float) -> list[float]:
    """Of four ranks that share so many cores, in the order in which they end."""
    tcp = dataclasses.replace(TCP, wake_ns=1000, wake_spread=(), **changes)  # type: ignore[arg-type]

    async def program(rank: Rank) -> None:
        for _ in range(40):
            await rank.barrier()

    found = spans(4, program, tcp, cores=cores, hosts_share_cores=True, draw=1)
    ends = sorted(ends_ms([span for span in found if span.rank == 0], "barrier"))
    return [after - before for before, after in pairwise([0.0, *ends])]


def test_threads_spin_where_cores_are_short() -> None:
    """They hold posts up for up to so long, several of a barrier's, and none where every thread has a core."""
    spinning = {"spin_ns": 4_000_000, "spin_share": 0.5}
    assert max(barriers_ms(2)) < 1.0
    crowded = barriers_ms(2, **spinning)
    assert 0.5 < max(crowded) < 4 * 4
    assert min(crowded) < 0.5
    assert barriers_ms(16, **spinning) == barriers_ms(16)


def test_verbs_are_issued_one_after_the_other() -> None:
    """By one thread: the third of three operations begins when three were issued."""

    async def program(rank: Rank) -> None:
        works = [rank.barrier(label=str(index)) for index in range(3)]
        for work in works:
            await work

    issue_ns = 100_000
    found = spans(2, program, dataclasses.replace(FREE, issue_ns=issue_ns))
    starts = [span.start_ns for span in found if span.rank == 0 and span.kind == "barrier"]
    assert starts[:2] == [issue_ns, 2 * issue_ns]
    assert starts[2] >= 3 * issue_ns


def test_a_step_that_has_computed_issues_more_slowly() -> None:
    """The first barrier of each step is quick, those after a computation are not, on no stream of the rank."""
    issue_ns, cold_ns = 100_000, 50_000
    tcp = dataclasses.replace(FREE, issue_ns=issue_ns, cold_ns=cold_ns)

    async def program(rank: Rank) -> None:
        aside = rank.stream("aside")
        for step in range(2):
            with rank.step(step):
                await rank.barrier(label="hot")
                await rank.compute(Kernel(kind="gemm"), int)
                await aside.barrier(label="cold")
                await rank.barrier(label="cold")

    found = [span for span in spans(2, program, tcp) if span.rank == 0 and span.kind == "barrier"]
    assert {(span.label, span.start_ns - span.issued_ns) for span in found} == {
        ("hot", issue_ns),
        ("cold", issue_ns + cold_ns),
    }


def test_times_of_a_draw_are_reproducible() -> None:
    assert all_to_all_ms(4, 0, 3, TCP) == all_to_all_ms(4, 0, 3, TCP) != all_to_all_ms(4, 0, 4, TCP)

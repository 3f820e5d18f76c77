"""What only a real rank owes: true ends, whenever they are awaited; the laws of all worlds are in tests/contract."""

from __future__ import annotations

import time

import torch
from torch.distributed import ReduceOp

from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.contract.scripts import Script
from tests.contract.worlds import scenario
from tests.real.pool import shared_pool

SLEEP_S = 0.3


async def awaits_late(rank: Rank) -> None:
    tensor, mean, share = torch.ones(1024), torch.ones(8) * rank.rank, torch.empty(4)
    works = [
        rank.all_reduce(tensor, label="sum"),
        rank.all_reduce(mean, ReduceOp.AVG, label="mean"),
        rank.reduce_scatter_tensor(share, torch.ones(8), label="share"),
    ]
    await rank.compute(Kernel(kind="gemm"), time.sleep, SLEEP_S)
    assert mean[0] == 0.5, "an average is finished when it has ended, not when it is awaited"
    for work in works:
        await work


def test_a_collective_ends_when_it_ended_not_when_it_was_awaited() -> None:
    recording = shared_pool().play(Script(awaits_late), scenario(1, 2))
    late = [span for span in recording.spans if span.label in ("sum", "mean", "share")]
    assert len(late) == 6
    for span in late:
        assert span.wait_from_ns - span.end_ns > SLEEP_S * 1e9 / 2
        assert span.wait_until_ns == span.wait_from_ns


async def meets_late(rank: Rank) -> None:
    if rank.rank == 1:
        time.sleep(SLEEP_S)
    await rank.barrier()


def test_waiting_for_late_members_is_inside_the_span() -> None:
    recording = shared_pool().play(Script(meets_late), scenario(1, 2))
    early, late = sorted(recording.spans, key=lambda span: span.rank)
    assert early.end_ns - early.start_ns > SLEEP_S * 1e9 / 2 > late.end_ns - late.start_ns
    assert early.end_ns > late.start_ns


async def meets_in_a_step(rank: Rank) -> None:
    with rank.step(0):
        await rank.barrier()


def test_processes_live_on_from_play_to_play_and_any_number_of_ranks_is_played() -> None:
    for hosts, gpus in ((1, 1), (2, 2), (3, 1), (1, 1)):
        recording = shared_pool().play(Script(meets_in_a_step), scenario(hosts, gpus))
        assert [(span.rank, span.host) for span in recording.spans if span.kind == "barrier"] == [
            (rank, rank // gpus) for rank in range(hosts * gpus)
        ]
        assert len(recording.info.hosts) == hosts

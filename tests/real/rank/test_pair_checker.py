"""When real ranks compare a send with its recv: also where the two are issued in different steps."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from real.launch.job import Check
from scenarios.seam.backend import Work
from scenarios.seam.errors import CollectiveError, RankLostError
from scenarios.seam.rank import Rank
from tests.contract.scripts import Script
from tests.contract.worlds import scenario
from tests.real.pool import shared_pool


def collect_results(body: Any, check: Check, timeout_s: float = 20.0) -> list[Any]:
    script = Script(body)
    shared_pool().play(script, scenario(1, 2, timeout_s=timeout_s), check)
    return [script.returned[rank] for rank in range(2)]


def message(rank: Rank, tensor: Tensor) -> Work[Any]:
    """From rank 0 to rank 1."""
    return rank.send(tensor, 1) if rank.rank == 0 else rank.recv(tensor, 0)


async def is_compared(rank: Rank) -> bool:
    """Whether two that give the same bytes as different types are told."""
    try:
        await message(rank, torch.ones(1, dtype=torch.int32 if rank.rank else torch.float32))
    except CollectiveError:
        return True
    return False


async def compared_by_step(rank: Rank) -> list[bool]:
    compared = []
    for step in range(3):
        with rank.step(step):
            compared += [await is_compared(rank), await is_compared(rank)]
    return compared


@pytest.mark.parametrize(
    ("check", "compared"),
    [("always", [True] * 6), ("first", [True] * 3 + [False] * 3), ("never", [False] * 6)],
)
def test_messages_are_compared_always_or_until_the_first_after_the_first_step_or_never(
    check: Check, compared: list[bool]
) -> None:
    assert collect_results(compared_by_step, check) == [compared] * 2


async def across_steps(rank: Rank) -> list[float]:
    """Each message is sent in one step and received in the next; those the other way are expected a step before."""
    got, back = [torch.zeros(1) for _ in range(6)], [torch.zeros(1) for _ in range(6)]
    works: list[Work[Any]] = []
    for step in range(7):
        with rank.step(step):
            if rank.rank == 0:
                works += [rank.send(torch.full((1,), 1.0 + step), 1)] if step < 6 else []
                works += [rank.recv(back[step], 1)] if step < 6 else []
            else:
                works += [rank.recv(got[step - 1], 0)] if step > 0 else []
                works += [rank.send(torch.full((1,), 10.0 * step), 0)] if step > 0 else []
    for work in works:
        await work
    return [tensor.item() for tensor in (back if rank.rank == 0 else got)]


@pytest.mark.parametrize("check", ["always", "first", "never"])
def test_a_message_may_be_sent_in_one_step_and_received_in_another(check: Check) -> None:
    sixths = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert collect_results(across_steps, check) == [[10.0 * number for number in sixths], sixths]


async def first_after_the_first_step(rank: Rank) -> list[bool]:
    with rank.step(0):
        await rank.barrier()
    with rank.step(1):
        return [await is_compared(rank), await is_compared(rank)]


def test_the_first_message_of_a_pair_is_compared_whenever_it_comes() -> None:
    assert collect_results(first_after_the_first_step, "first") == [[True, False]] * 2


async def many_in_flight(rank: Rank) -> list[float]:
    """Those that are not compared stay behind those that are."""
    tensors = [torch.full((1,), float(number) if rank.rank == 0 else 0.0) for number in range(12)]
    with rank.step(0):
        works = [message(rank, tensor) for tensor in tensors[:4]]
    works += [message(rank, tensor) for tensor in tensors[4:]]
    for work in reversed(works):
        await work
    return [tensor.item() for tensor in tensors]


@pytest.mark.parametrize("check", ["always", "first", "never"])
def test_messages_keep_their_order_whether_compared_or_not(check: Check) -> None:
    assert collect_results(many_in_flight, check) == [[float(number) for number in range(12)]] * 2


async def one_makes_no_group(rank: Rank) -> str:
    if rank.rank == 1:
        time.sleep(0.7)  # the end of a run waits for the others no longer than a group does
        return ""
    with pytest.raises(RankLostError) as caught:
        rank.new_group([1, 0])
    return str(caught.value)


def test_a_group_that_another_rank_never_makes_is_a_sentence_when_time_is_up() -> None:
    sentence = "rank 0 calls new_group [1, 0], which rank 1 did not within 0.9 s"
    assert collect_results(one_makes_no_group, "always", timeout_s=0.3) == [sentence, ""]

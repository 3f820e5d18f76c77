"""Refused calls among others: who hears of them, in which order, and what stays as it was."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.contract.worlds import results

SHORT = "rank {}: all_to_all: input_tensor_list has 1 tensors, expected the group's size {}"


async def refuse(work: Any) -> str:
    with pytest.raises(CollectiveError) as caught:
        await work
    return str(caught.value)


def wrong(rank: Rank) -> str:
    """An issue that is refused: the sentence."""
    with pytest.raises(CollectiveError) as caught:
        rank.all_to_all([torch.ones(1)] * rank.world_size, [torch.ones(1)])
    return str(caught.value)


async def every_rank_is_wrong(rank: Rank) -> str:
    return wrong(rank)


def test_ranks_that_are_wrong_each_hear_of_their_own_mistake(world: str) -> None:
    assert results(world, 1, 2, every_rank_is_wrong) == [SHORT.format(rank, 2) for rank in range(2)]


async def two_of_three(rank: Rank) -> str:
    return await refuse(rank.barrier()) if rank.rank == 0 else wrong(rank)


def test_of_several_mistakes_a_right_rank_hears_of_the_lowest_members(world: str) -> None:
    assert results(world, 1, 3, two_of_three) == [SHORT.format(max(rank, 1), 3) for rank in range(3)]


async def in_flight(rank: Rank) -> list[Any]:
    """Right, wrong and right calls on one group, all issued before the first is awaited."""
    tensors = [torch.ones(4), torch.ones(4) * 2]
    first = rank.all_reduce(tensors[0])
    if rank.rank == 1:
        said = wrong(rank)
        last = rank.all_reduce(tensors[1])
    else:
        works = rank.all_to_all([torch.ones(1)] * 2, [torch.ones(1)] * 2), rank.all_reduce(tensors[1])
        said, last = await refuse(works[0]), works[1]
    await last
    await first
    return [said, *(tensor[0].item() for tensor in tensors)]


def test_a_refused_call_among_others_under_way_fails_alone(world: str) -> None:
    assert results(world, 1, 2, in_flight) == [[SHORT.format(1, 2), 2.0, 4.0]] * 2


async def late(rank: Rank) -> str:
    if rank.rank == 1:
        said = wrong(rank)
        await rank.compute(Kernel(kind="elementwise"), int)
    else:
        await rank.compute(Kernel(kind="gemm", flops=1e8), torch.ones(300, 300).mm, torch.ones(300, 300))
        said = await refuse(rank.all_reduce(torch.ones(1)))
    return said


def test_a_member_that_comes_late_hears_of_a_mistake_that_was_made_before(world: str) -> None:
    assert results(world, 1, 2, late) == [SHORT.format(1, 2)] * 2


async def nobody_else_calls(rank: Rank) -> str:
    return wrong(rank) if rank.rank == 1 else ""


def test_a_mistake_that_nobody_can_hear_of_does_not_keep_a_run_from_ending(world: str) -> None:
    for _ in range(2):
        assert results(world, 1, 2, nobody_else_calls) == ["", SHORT.format(1, 2)]


async def two_groups(rank: Rank) -> list[float]:
    """Issued in different order on different ranks; each group has an order of its own."""
    groups = [rank.new_group([0, 1]), rank.new_group([1, 0])]
    tensors = [torch.full((1,), 1.0 + rank.rank), torch.full((1,), 10.0 * (1 + rank.rank))]
    order = (0, 1) if rank.rank == 0 else (1, 0)
    works = [rank.all_reduce(tensors[index], group=groups[index]) for index in order]
    for work in reversed(works):
        await work
    return [tensor.item() for tensor in tensors]


def test_groups_may_be_called_in_different_order_on_different_ranks(world: str) -> None:
    assert results(world, 1, 2, two_groups) == [[3.0, 30.0]] * 2


async def meets_between(rank: Rank) -> float:
    """A send and its recv between the issue of a collective and its await, on the same group."""
    tensor, token = torch.ones(1), torch.full((1,), 5.0)
    work = rank.all_reduce(tensor) if rank.rank == 0 else None
    await (rank.send(token, 1) if rank.rank == 0 else rank.recv(token.zero_(), 0))
    await (work or rank.all_reduce(tensor))
    return tensor.item() + token.item()


def test_a_send_does_not_wait_for_a_collective_that_was_issued_before(world: str) -> None:
    assert results(world, 1, 2, meets_between) == [7.0, 7.0]


async def outside(rank: Rank) -> tuple[list[str], bool, float]:
    """Rank 1 is no member: it is warned, whatever it gives, and has no place in the order of the group."""
    group, tensor = rank.new_group([0, 2]), torch.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if rank.rank == 1:
            none = [await rank.all_to_all([tensor], [tensor], group), await rank.send(tensor, 0, group)]
            return [str(warning.message) for warning in caught], none == [None, None], tensor.sum().item()
    await rank.all_reduce(tensor, group=group)
    return [str(warning.message) for warning in caught], True, tensor.sum().item()


def test_a_rank_outside_the_group_is_warned_and_gets_none_of_every_verb(world: str) -> None:
    warned = [f"rank 1: {op}: not a member of group group1 of [0, 2]; nothing is done" for op in ("all_to_all", "send")]
    assert results(world, 1, 3, outside) == [([], True, 4.0), (warned, True, 2.0), ([], True, 4.0)]


async def uncaught(rank: Rank) -> None:
    given = (torch.ones(2),) * 2 if rank.rank == 1 else [torch.ones(2)] * 2
    await rank.all_to_all([torch.empty(2), torch.empty(2)], given)  # type: ignore[arg-type]


async def uncaught_together(rank: Rank) -> None:
    await rank.all_reduce(torch.ones(2 + rank.rank))


async def dressed_up(rank: Rank) -> None:
    try:
        await uncaught(rank)
    except CollectiveError as error:
        raise RuntimeError("my layer failed") from error


TUPLE = "rank 1: all_to_all: input_tensor_list must be a list of tensors, got tuple"
SIZES = (
    "group world: rank 0 calls all_reduce (8 bytes, float32, sum), but rank 1 calls all_reduce (12 bytes, float32, sum)"
)


@pytest.mark.parametrize(
    ("body", "sentence"), [(uncaught, TUPLE), (uncaught_together, SIZES), (dressed_up, TUPLE)], ids=str
)
def test_a_run_that_ends_by_a_bad_call_says_the_sentence_of_the_rank_that_was_wrong(
    world: str, body: Any, sentence: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        results(world, 1, 2, body)
    assert str(caught.value) == sentence

"""Groups that ranks set up differently, where programs end or stand still before the last of them has come."""

from __future__ import annotations

import pytest
import torch

from scenarios.seam.errors import CollectiveError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.contract.worlds import results


async def one_makes_no_group(rank: Rank) -> None:
    if rank.rank != 1:
        rank.new_group([1, 0])


async def one_stands_still(rank: Rank) -> None:
    """Rank 2 waits for rank 0, which waits on a group of which rank 1 has made another."""
    if rank.rank == 2:
        await rank.recv(torch.ones(1), 0)
    await rank.barrier(rank.new_group([0, 1] if rank.rank == 0 else [1, 0]))


async def the_first_comes_last(rank: Rank) -> None:
    await rank.compute(Kernel(kind="elementwise", bytes_read=1e6 * (3 - rank.rank)), int)
    rank.new_group([0, rank.rank or 1])


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (one_makes_no_group, "rank 0 calls new_group [1, 0], but rank 1 never did"),
        (one_stands_still, "rank 0 calls new_group [0, 1], but rank 1 calls new_group [1, 0]"),
        (the_first_comes_last, "rank 0 calls new_group [0, 1], but rank 2 calls new_group [0, 2]"),
    ],
)
def test_a_group_that_not_all_ranks_make_alike_ends_the_run(body: object, sentence: str) -> None:
    with pytest.raises(CollectiveError) as caught:
        results("sim", 1, 3, body)  # type: ignore[arg-type]
    assert str(caught.value) == sentence

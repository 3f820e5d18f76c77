"""Whether gradients are recorded is each rank's own affair, and each stream's, in every world."""

from __future__ import annotations

import random

import pytest
import torch

from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.contract.worlds import results

KERNEL = Kernel(kind="elementwise", bytes_read=1000.0)


async def nests(rank: Rank, seed: int) -> list[tuple[bool, bool, bool]]:
    """What this rank asked for, what it finds after an await, and what a kernel found; drawn by each for itself."""
    drawn, found = random.Random(1000 * seed + rank.rank), []

    async def look(wanted: bool) -> None:
        inside = await rank.compute(KERNEL, torch.is_grad_enabled)
        found.append((wanted, torch.is_grad_enabled(), inside))
        await rank.barrier()
        found.append((wanted, torch.is_grad_enabled(), wanted))

    for _ in range(4):
        outer, inner = drawn.random() < 0.5, drawn.random() < 0.5
        with torch.set_grad_enabled(outer):
            await look(outer)
            with torch.set_grad_enabled(inner):
                await look(inner)
            await look(outer)
        await look(True)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_records_no_gradients_leaves_the_others_be(world: str, seed: int) -> None:
    for found in results(world, 1, 3, nests, seed):
        assert len(found) == 32
        assert all(wanted == after == inside for wanted, after, inside in found)


async def spawns(rank: Rank) -> list[bool]:
    side = rank.stream("side")
    with torch.no_grad():
        spawned = side.spawn(looks(side))
        await rank.barrier()
        return [await spawned, torch.is_grad_enabled()]


async def looks(rank: Rank) -> bool:
    await rank.barrier()
    return torch.is_grad_enabled()


def test_spawned_coroutines_record_gradients_independently_of_their_caller(world: str) -> None:
    assert results(world, 1, 2, spawns) == [[True, False]] * 2

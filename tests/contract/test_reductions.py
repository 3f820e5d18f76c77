"""Reductions of floating point numbers are the same to the bit in every world: their rounding, NaN and signed zeros."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.rank import Rank
from tests.contract.worlds import WORLDS, results

OPS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
}
DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
SIZES = (1, 5, 8, 37, 1000)  # some give each rank a chunk of the ring, some leave chunks empty
ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0)


def draw(rank: int, numel: int, dtype: str) -> Tensor:
    """Numbers whose sums round, every fifth an odd one."""
    generator = torch.Generator().manual_seed(100 * numel + rank)
    values = torch.randn(numel, 2, generator=generator)
    index = torch.randperm(numel, generator=generator)[: numel // 5]
    values[index, index % 2] = torch.tensor(ODD)[(index + rank) % len(ODD)]
    kind = getattr(torch, dtype)
    return torch.view_as_complex(values).to(kind) if kind.is_complex else values[:, 0].contiguous().to(kind)


def describe(tensor: Tensor) -> list[str]:
    """Exact values, the sign of zero among them; one NaN is as good as another."""
    parts = torch.view_as_real(tensor).reshape(-1) if tensor.is_complex() else tensor
    return ["nan" if math.isnan(value) else float(value).hex() for value in parts.tolist()]


async def reduces(rank: Rank, dtype: str) -> list[tuple[str, int, list[str]]]:
    """On all ranks, and scattered in a group of another order than its ranks'."""
    size, turned = rank.world_size, rank.new_group(list(range(rank.world_size))[::-1])
    names = [name for name in OPS if not (dtype.startswith("complex") and name in ("min", "max"))]
    found = []
    for name, numel in itertools.product(names, SIZES):
        found.append((name, numel, describe(await rank.all_reduce(draw(rank.rank, numel, dtype), OPS[name]))))
        given = draw(rank.rank, numel * size, dtype)
        output = torch.empty(numel, dtype=given.dtype)
        found.append((name, -numel, describe(await rank.reduce_scatter_tensor(output, given, OPS[name], turned))))
    return found


@pytest.mark.parametrize(
    ("ranks", "dtype"),
    [(3, dtype) for dtype in DTYPES]
    + [(5, "bfloat16")]
    + [pytest.param(ranks, dtype, marks=pytest.mark.slow) for ranks in (2, 5) for dtype in DTYPES],
)
def test_reductions_are_the_same_to_the_bit_in_every_world(ranks: int, dtype: str) -> None:
    simulated, real = (results(world, 1, ranks, reduces, dtype) for world in sorted(WORLDS, reverse=True))
    assert simulated == real


async def reduces_much(rank: Rank) -> list[float]:
    """Chunks of several segments each."""
    generator = torch.Generator().manual_seed(rank.rank)
    total = await rank.all_reduce(torch.randn((1 << 20) + 3, generator=generator))
    return [total.view(torch.int32).to(torch.int64).sum().item(), *total[:: 1 << 16].tolist()]


def test_long_sums_are_the_same_to_the_bit_in_every_world() -> None:
    simulated, real = (results(world, 1, 3, reduces_much) for world in sorted(WORLDS, reverse=True))
    assert simulated == real


async def meets_nan(rank: Rank) -> list[list[float]]:
    found = []
    for at in range(3):
        for op in (ReduceOp.MAX, ReduceOp.MIN):
            mine = torch.full((6,), math.nan if rank.rank == at else 1.0 + rank.rank)
            found.append((await rank.all_reduce(mine, op)).nan_to_num(-1.0).tolist())
    return found


def test_max_and_min_keep_a_nan_only_of_the_rank_whose_chunk_it_is(world: str) -> None:
    """Of three ranks with 1, 2 and 3, one of which has NaN (here -1) instead: what gloo has been seen to give."""
    assert (
        results(world, 1, 3, meets_nan)
        == [
            [
                [-1.0, -1.0, 3.0, 3.0, 3.0, 3.0],
                [-1.0, -1.0, 2.0, 2.0, 3.0, 3.0],
                [1.0, 1.0, -1.0, -1.0, 3.0, 3.0],
                [1.0, 1.0, -1.0, -1.0, 1.0, 1.0],
                [2.0, 2.0, 2.0, 2.0, -1.0, -1.0],
                [1.0, 1.0, 2.0, 2.0, -1.0, -1.0],
            ]
        ]
        * 3
    )

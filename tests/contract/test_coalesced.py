"""Several all-reduces as one call: the same sums as one by one in every world, as torch.distributed's own call."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.errors import CollectiveError
from scenarios.seam.rank import Rank
from tests.contract.test_reductions import DTYPES, OPS, describe, draw
from tests.contract.worlds import WORLDS, results

SIZES = (5, 1, 0, 37)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]


def integers(rank: int, sizes: Sequence[int], dtype: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randint(0, 4, (size,), generator=generator).to(getattr(torch, dtype)) for size in sizes]


async def adds_whole_numbers(rank: Rank, dtype: str) -> list[list[int]]:
    given = integers(rank.rank, SIZES, dtype)
    result = await rank.all_reduce_coalesced(given)
    assert result is given
    return [each.tolist() for each in given]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_tensors_are_reduced_as_if_alone(world: str, dtype: str) -> None:
    found = results(world, 1, 3, adds_whole_numbers, dtype)
    every = [integers(rank, SIZES, "int64") for rank in range(3)]
    assert found == [[torch.stack(each).sum(0).tolist() for each in zip(*every, strict=True)]] * 3


async def reduces(rank: Rank, dtype: str) -> list[list[str]]:
    turned = rank.new_group(list(range(rank.world_size))[::-1])
    found = []
    for name, op in OPS.items():
        if dtype.startswith("complex") and name in ("min", "max"):
            continue
        tensors = [draw(rank.rank, size, dtype) for size in (8, 37)] + [draw(rank.rank, 6, dtype).view(2, 3)]
        found += [describe(each.view(-1)) for each in await rank.all_reduce_coalesced(tensors, op, turned)]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_have_equal_bits_in_every_world(dtype: str) -> None:
    simulated, real = (results(world, 1, 3, reduces, dtype) for world in sorted(WORLDS, reverse=True))
    assert simulated == real


async def reduces_both_ways(rank: Rank, sizes: tuple[int, ...]) -> list[list[list[str]]]:
    def fresh() -> list[Tensor]:
        generator = torch.Generator().manual_seed(rank.rank)
        return [torch.randn(size, generator=generator) for size in sizes]

    together = await rank.all_reduce_coalesced(fresh(), ReduceOp.AVG)
    works = [rank.all_reduce(each, ReduceOp.AVG) for each in fresh()]
    return [list(map(describe, together)), [describe(await work) for work in works]]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=6).map(tuple))
def test_of_two_ranks_grouped_and_single_sums_are_the_same_to_the_bit(sizes: tuple[int, ...]) -> None:
    """Of two numbers there is one order."""
    for world in WORLDS:
        for together, singly in results(world, 1, 2, reduces_both_ways, sizes):
            assert together == singly


def test_of_more_ranks_they_are_within_rounding(world: str) -> None:
    """gloo's ring goes round chunk by chunk, and chunks of one buffer are others than those of several."""
    found = results(world, 1, 3, reduces_both_ways, (1000, 37))
    assert all(each == found[0] for each in found)
    values = [[float.fromhex(one) for each in way for one in each] for way in found[0]]
    assert values[0] == pytest.approx(values[1], rel=1e-6, abs=1e-6)


async def raises(rank: Rank, kind: str) -> str:
    bad = {
        "empty": [],
        "tuple": (torch.ones(2),),
        "mixed": [torch.ones(2), torch.ones(2, dtype=torch.float64)],
        "no tensor": [torch.ones(2), 3],
        "strided": [torch.ones(4)[::2]],
        "total": [torch.ones(2), torch.ones(2)],
        "sizes": [torch.ones(1), torch.ones(3)],
    }
    given = bad[kind] if rank.rank == 1 else [torch.ones(2), torch.ones(3 if kind == "total" else 2)]
    try:
        await rank.all_reduce_coalesced(given, label="sync")  # type: ignore[arg-type]
    except (TypeError, ValueError, CollectiveError) as mistake:
        said = str(mistake)
    total = await rank.all_reduce(torch.ones(1))
    assert total.item() == 2
    return said


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("empty", "rank 1: all_reduce_coalesced: tensors is empty, expected at least one tensor"),
        ("tuple", "rank 1: all_reduce_coalesced: tensors must be a list of tensors, got tuple"),
        ("mixed", "rank 1: all_reduce_coalesced: all tensors must have one dtype, got float32 and float64"),
        ("no tensor", "rank 1: all_reduce_coalesced: tensors[1] must be a tensor, got int"),
        ("strided", "rank 1: all_reduce_coalesced: tensors[0] of shape (2,) must be contiguous"),
        (
            "total",
            "group world: rank 0 calls all_reduce_coalesced 'sync' (20 bytes, float32, sum),"
            " but rank 1 calls all_reduce_coalesced 'sync' (16 bytes, float32, sum)",
        ),
        (
            "sizes",
            "group world: all_reduce_coalesced 'sync': rank 0 and rank 1 give 16 bytes each, in tensors of other sizes",
        ),
    ],
)
def test_a_bad_call_is_one_sentence_on_every_rank(world: str, kind: str, sentence: str) -> None:
    assert results(world, 1, 2, raises, kind) == [sentence] * 2


async def is_poisoned(rank: Rank) -> list[bool]:
    given = [torch.ones(2), torch.ones(3)]
    work = rank.all_reduce_coalesced(given)
    before = [math.isnan(value) for each in given for value in each.tolist()]
    await work
    return before


def test_outputs_are_poisoned_until_it_has_ended() -> None:
    assert all(all(found) for found in results("sim", 1, 2, is_poisoned))


async def reduces_as_torch(rank: Rank, dtype: torch.dtype) -> list[list[list[str]]]:
    def fresh() -> list[Tensor]:
        return [draw(rank.rank, size, "float32").to(dtype) for size in (8, 37)]

    ours = await rank.all_reduce_coalesced(fresh())
    theirs = fresh()
    with warnings.catch_warnings(action="ignore"):  # torch's function is to go some day
        torch.distributed.all_reduce_coalesced(theirs)
    return [list(map(describe, each)) for each in (ours, theirs)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_equal_those_of_torchs_own_call(dtype: torch.dtype) -> None:
    for ours, theirs in results("real", 1, 3, reduces_as_torch, dtype):
        assert ours == theirs

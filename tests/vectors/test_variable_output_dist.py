"""Pooled embeddings of batches that differ by key: there and back, against a loop over ranks, keys and samples."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse import (
    KeyedJagged,
    TwRwSparseFeaturesDist,
)
from scenarios.sparse.input_dist import staggered_sources
from tests.lockstep import Lockstep
from tests.vectors.variable_output_dist import (
    VariableBatchEmbeddingDist,
    VariableBatchRwEmbeddingDist,
    VariableBatchTwEmbeddingDist,
    VariableBatchTwRwEmbeddingDist,
)

Widths = tuple[tuple[int, ...], ...]  # of the keys, by who owns them


@st.composite
def exchanges(draw: st.DrawFn) -> dict[str, Any]:
    """`batches[rank][key]`: zeros too, whole ranks of them, and by chance the same for all keys."""
    hosts, local, kind = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from(["tw", "rw", "twrw"]))
    owners = {"tw": hosts * local, "rw": 1, "twrw": hosts}[kind]
    widths = draw(st.tuples(*[st.lists(st.integers(1, 3), max_size=2).map(tuple)] * owners))
    keys = sum(map(len, widths))
    row = st.lists(st.integers(0, 3), min_size=keys, max_size=keys) | st.integers(0, 2).map(lambda same: [same] * keys)
    batches = draw(st.lists(row, min_size=hosts * local, max_size=hosts * local))
    return {"hosts": hosts, "local": local, "kind": kind, "widths": widths, "batches": batches}


def dist_of(case: dict[str, Any]) -> VariableBatchEmbeddingDist:
    widths: Widths = case["widths"]
    if case["kind"] == "tw":
        return VariableBatchTwEmbeddingDist(dims_per_rank=widths)
    if case["kind"] == "rw":
        return VariableBatchRwEmbeddingDist(dims=widths[0])
    return VariableBatchTwRwEmbeddingDist(dims_per_node=widths)


def sources_of(case: dict[str, Any]) -> tuple[int, ...]:
    ranks = tuple(range(case["hosts"] * case["local"]))
    return staggered_sources(case["hosts"], case["local"]) if case["kind"] == "twrw" else ranks


def owner_of(case: dict[str, Any], rank: int) -> int:
    return {"tw": rank, "rw": 0, "twrw": rank // case["local"]}[case["kind"]]


def keys_of(case: dict[str, Any], owner: int) -> range:
    start = sum(map(len, case["widths"][:owner]))
    return range(start, start + len(case["widths"][owner]))


def value(owner: int, source: int, key: int, sample: int, column: int, part: int = 0) -> float:
    """A number that tells where it comes from; of rows that are cut, every rank has a `part` of it."""
    return float(part + 7 * (column + 3 * (sample + 4 * (key + 8 * (source + 9 * owner)))))


def each_rank(case: dict[str, Any], run: Callable[[Any, Any, Any, Any], Any]) -> list[Tensor]:
    """`run(dist, rank, strides, own)` on every rank."""
    world = Lockstep(case["hosts"], case["local"])

    async def program(rank: Rank) -> Tensor:
        strides = [
            [case["batches"][source][key] for source in sources_of(case)]
            for key in keys_of(case, owner_of(case, rank.rank))
        ]
        return await run(dist_of(case), rank, strides, case["batches"][rank.rank])

    return world.run(program)


def pooled_of(case: dict[str, Any], rank: int) -> Tensor:
    owner = owner_of(case, rank)
    widths = dict(zip(keys_of(case, owner), case["widths"][owner], strict=True))
    flat = [
        value(owner, source, key, sample, column, rank)
        for source in sources_of(case)
        for key, width in widths.items()
        for sample in range(case["batches"][source][key])
        for column in range(width)
    ]
    return torch.tensor(flat, dtype=torch.float64)


def home_of(case: dict[str, Any], rank: int) -> list[float]:
    """What the rank should have: the sum over everyone who holds rows of the key."""
    ranks = range(case["hosts"] * case["local"])
    return [
        sum(value(owner, rank, key, sample, column, other) for other in ranks if owner_of(case, other) == owner)
        for owner, widths in enumerate(case["widths"])
        for key, width in zip(keys_of(case, owner), widths, strict=True)
        for sample in range(case["batches"][rank][key])
        for column in range(width)
    ]


@given(exchanges())
def test_every_sample_of_every_key_comes_home(case: dict[str, Any]) -> None:
    got = each_rank(case, lambda dist, rank, *sizes: dist.forward(rank, pooled_of(case, rank.rank), *sizes))
    assert [one.tolist() for one in got] == [home_of(case, rank) for rank in range(len(got))]


@given(exchanges(), st.integers(0, 9))
def test_backward_is_the_transpose_of_forward(case: dict[str, Any], seed: int) -> None:
    """<forward(x), g> = <x, backward(g)> over all ranks, for any x and g: exact in whole numbers."""
    generator = torch.Generator().manual_seed(seed)

    def whole(numel: int) -> Tensor:
        return torch.randint(-9, 10, (numel,), generator=generator, dtype=torch.float64)

    ranks = range(case["hosts"] * case["local"])
    given = [whole(pooled_of(case, rank).numel()) for rank in ranks]
    grads = [whole(len(home_of(case, rank))) for rank in ranks]
    there = each_rank(case, lambda dist, rank, *sizes: dist.forward(rank, given[rank.rank], *sizes))
    back = each_rank(case, lambda dist, rank, *sizes: dist.backward(rank, grads[rank.rank], *sizes))
    assert sum(one @ grad for one, grad in zip(there, grads, strict=True)) == sum(
        one @ grad for one, grad in zip(given, back, strict=True)
    )


@pytest.mark.parametrize("batches", [[(2, 1), (0, 0), (1, 3), (0, 2)], [(2, 2)] * 4], ids=["by key", "equal by chance"])
def test_the_output_exchange_takes_the_input_exchanges_results(batches: list[tuple[int, int]]) -> None:
    """Ids that are their own embeddings, one column wide. No samples, or equal batches, are no exception."""
    dist = TwRwSparseFeaturesDist(Group("world", (0, 1, 2, 3)), 2, [1, 1, 1, 1], [40, 40])
    back = VariableBatchTwRwEmbeddingDist(dims_per_node=((1,), (1,)))

    async def program(rank: Rank) -> Tensor:
        first, second = batches[rank.rank]
        own = torch.arange(first + second) + 10 * rank.rank
        features = KeyedJagged(
            keys=("a", "b"),
            values=own,
            lengths=torch.ones(len(own), dtype=torch.int64),
            stride_per_key_per_rank=((first,), (second,)),
        )
        mine = await dist(rank, features)
        rows = torch.zeros(mine.lengths.numel()).double()
        rows[mine.lengths > 0] = (mine.values + 20 * rank.local_rank).double()
        assert mine.stride_per_key_per_rank is not None
        return await back.forward(rank, rows, mine.stride_per_key_per_rank, (first, second))

    got = Lockstep(2, 2).run(program)
    assert [one.tolist() for one in got] == [
        [10 * rank + place for place in range(sum(batches[rank]))] for rank in range(4)
    ]


def run_with(dist: VariableBatchEmbeddingDist, numel: int, strides: Any, own: Any) -> None:
    Lockstep(2, 1).run(lambda rank: dist.forward(rank, torch.zeros(numel), strides, own))


TW = VariableBatchTwEmbeddingDist(dims_per_rank=((1,), (2,)))
WRONG: dict[str, Callable[[], None]] = {
    "dims_per_rank: got 1, expected 2": lambda: run_with(
        VariableBatchTwEmbeddingDist(dims_per_rank=((1,),)), 2, [[1, 1]], [1]
    ),
    "dims_per_node: got 3, expected 2": lambda: run_with(
        VariableBatchTwRwEmbeddingDist(dims_per_node=((), (), ())), 0, [], []
    ),
    "strides: got 0, expected 1": lambda: run_with(TW, 0, [], [1, 1]),
    "strides of a key: got 3, expected 2": lambda: run_with(TW, 3, [[1, 1, 1]], [1, 1]),
    "own: got 1, expected 2": lambda: run_with(TW, 2, [[1, 1]], [1]),
    "elements: got 3, expected 2": lambda: run_with(TW, 3, [[1, 1]], [1, 1]),
    "pooled: got 1, expected 2": lambda: run_with(VariableBatchRwEmbeddingDist(dims=(1,)), 1, [[1, 1]], [1]),
    "elements of own: got 2, expected 1": lambda: run_with(VariableBatchRwEmbeddingDist(dims=(1,)), 2, [[1, 1]], [2]),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_sizes_that_do_not_fit_are_one_sentence(sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        WRONG[sentence]()

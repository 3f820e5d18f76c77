"""The pooled output exchanges: TorchRec 1.8.0's recorded ones, and that every backward is its forward's transpose."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.sparse.input_dist import staggered_sources
from scenarios.sparse.output_dist import (
    DpPooledEmbeddingDist,
    PooledEmbeddingDist,
    RwPooledEmbeddingDist,
    TwPooledEmbeddingDist,
    TwRwPooledEmbeddingDist,
)
from tests.lockstep import Lockstep


def forward(world: Lockstep, dist: PooledEmbeddingDist, inputs: list[Tensor], batches: list[int]) -> list[Tensor]:
    return world.run(lambda rank: dist.forward(rank, inputs[rank.rank].to(world.payload), batches))


def backward(world: Lockstep, dist: PooledEmbeddingDist, grads: list[Tensor], batches: list[int]) -> list[Tensor]:
    return world.run(lambda rank: dist.backward(rank, grads[rank.rank].to(world.payload), batches))


KINDS = ["tw", "rw", "twrw", "dp"]


@st.composite
def exchanges(draw: st.DrawFn) -> dict[str, Any]:
    hosts, local = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    ranks = hosts * local
    even, kind = draw(st.booleans()), draw(st.sampled_from(KINDS))
    batches = (
        [draw(st.integers(0, 3))] * ranks if even else draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks))
    )
    owners = {"tw": ranks, "twrw": hosts}.get(kind, 1)
    dims = tuple(draw(st.lists(st.integers(0, 4), min_size=owners, max_size=owners)))
    return {"hosts": hosts, "local": local, "kind": kind, "batches": batches, "dims": dims}


def dist_of(case: dict[str, Any]) -> PooledEmbeddingDist:
    made: dict[str, PooledEmbeddingDist] = {
        "tw": TwPooledEmbeddingDist(dim_sum_per_rank=case["dims"]),
        "twrw": TwRwPooledEmbeddingDist(dim_sum_per_node=case["dims"]),
        "rw": RwPooledEmbeddingDist(),
        "dp": DpPooledEmbeddingDist(),
    }
    return made[case["kind"]]


def width_of(case: dict[str, Any], rank: int) -> int:
    width: int = case["dims"][{"tw": rank, "twrw": rank // case["local"]}.get(case["kind"], 0)]
    return width


def draw_inputs(case: dict[str, Any], seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Whole numbers, so that sums are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    ranks, total = case["hosts"] * case["local"], sum(case["batches"])

    def numbers(*shape: int) -> Tensor:
        return torch.randint(-8, 9, shape, generator=generator).float()

    rows = [case["batches"][rank] if case["kind"] == "dp" else total for rank in range(ranks)]
    pooled = [numbers(rows[rank], width_of(case, rank)) for rank in range(ranks)]
    return pooled, [numbers(case["batches"][rank], sum(case["dims"])) for rank in range(ranks)]


def reference(case: dict[str, Any], pooled: list[Tensor]) -> list[Tensor]:
    """What every rank must get, from all inputs in one place."""
    hosts, local, batches = case["hosts"], case["local"], case["batches"]
    if case["kind"] == "dp":
        return pooled
    order = staggered_sources(hosts, local) if case["kind"] == "twrw" else range(hosts * local)
    span = {"tw": 1, "twrw": local}.get(case["kind"], hosts * local)
    rows = torch.cat([sum(pooled[first : first + span]) for first in range(0, hosts * local, span)], dim=1)
    parts = dict(zip(order, rows.split([batches[source] for source in order]), strict=True))
    return [parts[rank] for rank in range(hosts * local)]


@given(exchanges(), st.integers(0, 1000))
def test_every_sample_comes_home_with_all_its_columns(case: dict[str, Any], seed: int) -> None:
    pooled, _ = draw_inputs(case, seed)
    outputs = forward(Lockstep(case["hosts"], case["local"]), dist_of(case), pooled, case["batches"])
    assert [one.tolist() for one in outputs] == [one.tolist() for one in reference(case, pooled)]


@given(exchanges(), st.integers(0, 1000))
def test_backward_is_the_transpose_of_forward_without_any_division(case: dict[str, Any], seed: int) -> None:
    pooled, grads = draw_inputs(case, seed)
    leaves = [one.requires_grad_() for one in pooled]
    total = torch.stack([(one * grad).sum() for one, grad in zip(reference(case, leaves), grads, strict=True)]).sum()
    expected = torch.autograd.grad(total, leaves)
    got = backward(Lockstep(case["hosts"], case["local"]), dist_of(case), grads, case["batches"])
    assert [one.tolist() for one in got] == [one.tolist() for one in expected]


@given(exchanges())
def test_without_values_shapes_calls_and_costs_are_the_same(case: dict[str, Any]) -> None:
    pooled, grads = draw_inputs(case, 0)
    for way, inputs in ((forward, pooled), (backward, grads)):
        real, sizes = (Lockstep(case["hosts"], case["local"], payload) for payload in ("cpu", "meta"))
        with_values, without = (way(world, dist_of(case), inputs, case["batches"]) for world in (real, sizes))
        assert all(one.is_meta for one in without)
        assert [one.shape for one in without] == [one.shape for one in with_values]
        assert (sizes.log, sizes.kernels_by_rank) == (real.log, real.kernels_by_rank)


def test_columns_stand_host_by_host() -> None:
    world, dist = Lockstep(2, 1), TwRwPooledEmbeddingDist(dim_sum_per_node=(1, 2))
    inputs = [torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])]
    assert [one.tolist() for one in forward(world, dist, inputs, [1, 1])] == [[[1, 3, 4]], [[2, 5, 6]]]


def test_uneven_chunks_send_the_bytes_of_a_direct_reduce_scatter() -> None:
    world = Lockstep(1, 3)
    forward(world, RwPooledEmbeddingDist(), [torch.ones(6, 2)] * 3, [1, 2, 3])
    assert [[call.bytes_sent for call in world.log[rank]] for rank in range(3)] == [[40], [32], [24]]

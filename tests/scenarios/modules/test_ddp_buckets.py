from __future__ import annotations

import random
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.compression import PowerSGDState, batched_powersgd
from scenarios.config.scenario import Buckets, Compression
from scenarios.modules.ddp_buckets import (
    GradientBucket,
    GradientReducer,
    assign_buckets,
    flatten,
    reduction_parts,
    unflatten,
)
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel
from tests.lockstep import play

SHAPES = [(6, 5), (6,), (8, 6), (8,), (2, 2, 8), (3,), ()]
SMALL = Buckets(first_bytes=100, cap_bytes=200)
KINDS = [
    Compression(),
    Compression(kind="batched_powersgd", start_powerSGD_iter=2),
    Compression(kind="layerwise_powersgd", start_powerSGD_iter=2, min_compression_rate=1.0),
]


@given(st.lists(st.integers(0, 500)), st.integers(1, 400), st.integers(1, 1000))
def test_buckets_take_all_in_reverse_and_close_at_their_cap(sizes: list[int], first: int, cap: int) -> None:
    assigned = assign_buckets(sizes, Buckets(first_bytes=first, cap_bytes=cap))
    assert [index for members in assigned for index in members] == list(reversed(range(len(sizes))))
    for number, members in enumerate(assigned):
        limit = cap if number else first
        assert sum(sizes[index] for index in members[:-1]) < limit
        assert number == len(assigned) - 1 or sum(sizes[index] for index in members) >= limit


def test_buckets_equal_those_recorded_from_ddp() -> None:
    """The vector b067: three parameters of 400, 20 and 400 float32, with bucket_cap_mb = 0.001."""
    cap = Buckets(first_bytes=1048, cap_bytes=1048)
    assert assign_buckets([1600, 80, 1600], cap) == ((2,), (1, 0))


def test_the_first_bucket_is_small_so_that_reduction_starts_early() -> None:
    mib = 1 << 20
    assert assign_buckets([mib] * 30, Buckets()) == ((29,), tuple(range(28, 3, -1)), (3, 2, 1, 0))


def test_flatten_and_unflatten_are_inverse() -> None:
    gradients = [torch.randn(shape) for shape in SHAPES]
    buffer = torch.empty(sum(map(prod, SHAPES)))
    flatten([gradients[0], *gradients[1:4], gradients[4].mT.contiguous().mT, *gradients[5:]], buffer)
    views = unflatten(buffer, SHAPES)
    assert all(torch.equal(view, gradient) for view, gradient in zip(views, gradients, strict=True))
    assert views[0].data_ptr() == buffer.data_ptr()


class Training:
    """Steps on every rank over random gradients, given in the orders that `order(rank, step)` says."""

    def __init__(
        self, compression: Compression, ranks: int, steps: int, order: Any = None, device: str = "cpu"
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        self.gradients = [
            [[torch.randn(shape, generator=generator) for shape in SHAPES] for _ in range(ranks)] for _ in range(steps)
        ]
        self._compression, self._device = compression, device
        self._order = order or (lambda rank, step: reversed(range(len(SHAPES))))
        self.reducers: dict[int, GradientReducer] = {}

    async def __call__(self, rank: Any) -> list[list[Tensor]]:
        side = rank.stream("gradients")
        reducer = GradientReducer(side, SHAPES, buckets=SMALL, compression=self._compression)
        self.reducers[rank.rank] = reducer
        results = []
        for step, of_ranks in enumerate(self.gradients):
            for index in self._order(rank.rank, step):
                await rank.compute(Kernel(kind="gemm"), int, label=f"backward.{index}")
                reducer.add(index, of_ranks[rank.rank][index].clone().to(self._device))
            results.append([gradient.clone() for gradient in await reducer.finish()])
        return results

    def means(self, step: int) -> list[Tensor]:
        of_ranks = self.gradients[step]
        return [sum(each[index] for each in of_ranks) / len(of_ranks) for index in range(len(SHAPES))]


def test_gradients_are_averaged() -> None:
    training = Training(Compression(), ranks=3, steps=3)
    results, fabric = play(training, 3)
    for mine in results:
        for step in range(3):
            for result, mean in zip(mine[step], training.means(step), strict=True):
                torch.testing.assert_close(result, mean)
    assert {call.label for call in fabric.calls} == {"gradients.mean"}
    assert {call.group.name for call in fabric.calls} == {"gradients/world"}


def test_a_compressed_bucket_is_reduced_as_the_algorithm_alone_reduces_it() -> None:
    training = Training(KINDS[1], ranks=2, steps=4)
    results, _ = play(training, 2)
    members = assign_buckets([4 * prod(shape) for shape in SHAPES], SMALL)

    async def alone(rank: Any) -> list[list[Tensor]]:
        state, steps = PowerSGDState(start_powerSGD_iter=2), []
        for of_ranks in training.gradients:
            views: dict[int, Tensor] = {}
            for index, bucket_members in enumerate(members):
                values = torch.cat([of_ranks[rank.rank][member].reshape(-1) for member in bucket_members])
                shapes = [SHAPES[member] for member in bucket_members]
                bucket = GradientBucket(index, values, shapes, is_last=index == len(members) - 1)
                await batched_powersgd(rank, state, bucket)
                views.update(zip(bucket_members, bucket.gradients(), strict=True))
            steps.append([views[index] for index in range(len(SHAPES))])
        return steps

    expected, _ = play(alone, 2)
    for step in range(4):
        for mine, other in zip(results[1][step], expected[1][step], strict=True):
            assert torch.equal(mine, other)


@pytest.mark.parametrize("compression", KINDS, ids=lambda compression: compression.kind)
def test_averages_and_order_of_collectives_do_not_depend_on_arrival(compression: Compression) -> None:
    def shuffle(rank: int, step: int) -> list[int]:
        return random.Random(100 * rank + step).sample(range(len(SHAPES)), len(SHAPES))

    expected, fabric = play(Training(compression, 3, 4), 3)
    orders = {rank: [call.label for call in fabric.calls if call.rank == rank] for rank in range(3)}
    assert orders[0] == orders[1] == orders[2]
    for seed in range(5):
        results, again = play(Training(compression, 3, 4, shuffle), 3, seed=seed)
        for rank in range(3):
            assert [call.label for call in again.calls if call.rank == rank] == orders[0]
            for step in range(4):
                for mine, other in zip(results[rank][step], expected[rank][step], strict=True):
                    assert torch.equal(mine, other)


def test_reduction_begins_before_the_backward_pass_ends() -> None:
    _, fabric = play(Training(Compression(), ranks=1, steps=1), 1)
    labels = [label for _, label, _ in fabric.kernels]
    assert labels.index("gradients.bucket") < labels.index("backward.0")


@pytest.mark.parametrize("compression", KINDS, ids=lambda compression: compression.kind)
def test_a_meta_run_issues_the_same_as_one_with_values(compression: Compression) -> None:
    _, values = play(Training(compression, 2, 4), 2)
    results, sizes = play(Training(compression, 2, 4, device="meta"), 2, device="meta")
    assert [(call.rank, call.label, call.bytes_in) for call in sizes.calls] == [
        (call.rank, call.label, call.bytes_in) for call in values.calls
    ]
    assert sizes.kernels == values.kernels
    assert [tuple(gradient.shape) for gradient in results[0][0]] == SHAPES


@pytest.mark.parametrize("compression", KINDS, ids=lambda compression: compression.kind)
def test_reduction_memory_equals_a_reducers_buffers(compression: Compression) -> None:
    training = Training(compression, ranks=1, steps=4)
    play(training, 1)
    reducer = training.reducers[0]
    parts = {part.name: part.size_bytes for part in reduction_parts(SHAPES, torch.float32, SMALL, compression)}

    def count_held(*dictionaries: dict[int, Tensor]) -> int:
        return sum(tensor.nbytes for dictionary in dictionaries for tensor in dictionary.values())

    expected = {"gradient buckets": 4 * sum(map(prod, SHAPES))}
    if reducer.state is not None:
        expected["compression factors"] = count_held(reducer.state.p_memory_dict, reducer.state.q_memory_dict)
        expected["compression error"] = count_held(reducer.state.error_dict)
    assert parts == expected


def test_without_error_feedback_no_error_is_stored() -> None:
    compression = Compression(kind="batched_powersgd", use_error_feedback=False)
    parts = reduction_parts(SHAPES, torch.float32, SMALL, compression)
    assert "compression error" not in {part.name for part in parts}


def mistake(gradients: list[tuple[int, Tensor]]) -> str:
    async def program(rank: Any) -> str:
        reducer = GradientReducer(rank.stream("gradients"), [(4, 2), (3,)])
        try:
            for index, gradient in gradients:
                reducer.add(index, gradient)
            await reducer.finish()
        except ProgramError as error:
            return str(error)
        raise AssertionError("nothing was refused")

    (sentence,), _ = play(program, 1, all_awaited=False)
    return str(sentence)


def test_mistakes_are_sentences() -> None:
    assert mistake([(1, torch.ones(3)), (1, torch.ones(3))]) == (
        "rank 0: the gradient of parameter 1 was added twice in one step"
    )
    assert mistake([(2, torch.ones(3))]) == "rank 0: parameter 2 is not one of the 2 parameters"
    assert mistake([(0, torch.ones(2, 4))]) == (
        "rank 0: the gradient of parameter 0 is (2, 4) torch.float32, expected (4, 2) torch.float32"
    )
    assert mistake([(1, torch.ones(3).double())]) == (
        "rank 0: the gradient of parameter 1 is (3,) torch.float64, expected (3,) torch.float32"
    )
    assert mistake([(1, torch.ones(3))]) == "rank 0: no gradient was added for parameters [0]"

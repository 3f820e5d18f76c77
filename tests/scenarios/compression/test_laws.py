"""What both algorithms must keep, whatever the shapes, ranks and options."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.compression.batched import square_side
from scenarios.compression.layerwise import lay_out
from scenarios.modules.ddp_buckets import unflatten
from tests.lanes import examples
from tests.lockstep import play
from tests.scenarios.compression.helpers import Run, list_issued, random_gradients

Algorithm = Callable[..., Any]
BOTH = pytest.mark.parametrize("algorithm", [batched_powersgd, layerwise_powersgd])
SHAPES = [(12, 10), (7,), (5, 3, 4), (12, 10), (3, 30)]

extents = st.lists(
    st.one_of(st.tuples(st.integers(1, 30)), st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))),
    min_size=1,
    max_size=5,
)


@examples(40)
@given(extents, st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_layerwise_with_full_rank_is_the_mean(
    shapes: list[tuple[int, ...]], ranks: int, batch: bool, seed: int
) -> None:
    gradients = random_gradients(shapes, ranks, 5, seed=seed)
    run = Run(
        layerwise_powersgd,
        shapes,
        gradients,
        matrix_approximation_rank=1000,
        min_compression_rate=0.001,
        start_powerSGD_iter=2,
        batch_tensors_with_same_shape=batch,
        random_seed=seed,
    )
    errors = [torch.zeros_like(gradient) for gradient in gradients[0]]
    for step, of_ranks in enumerate(gradients):
        if step < 2:
            expected = sum(of_ranks) / ranks
        else:
            corrected = [gradient + error for gradient, error in zip(of_ranks, errors, strict=True)]
            expected = sum(corrected) / ranks
            errors = [each - expected for each in corrected]
        torch.testing.assert_close(run.results[step], expected, atol=1e-7, rtol=1e-7)


@examples(40)
@given(st.integers(1, 60).filter(lambda numel: numel != 2), st.integers(1, 4), st.integers(0, 99))
def test_batched_with_full_rank_is_the_mean(numel: int, ranks: int, seed: int) -> None:
    """Two elements are a square with a row of zeros, which Gram-Schmidt cannot take; QR can take such rows."""
    gradients = random_gradients([(numel,)], ranks, 3, seed=seed)
    run = Run(
        batched_powersgd,
        [(numel,)],
        gradients,
        matrix_approximation_rank=square_side(numel),
        start_powerSGD_iter=2,
        random_seed=seed,
        use_error_feedback=False,
    )
    torch.testing.assert_close(run.results[2], sum(gradients[2]) / ranks, atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(run.results[1], sum(gradients[1]) / ranks)


@examples(60)
@given(extents, st.integers(1, 4), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 99))
def test_error_feedback_conserves_the_gradient(
    shapes: list[tuple[int, ...]], ranks: int, rank: int, layerwise: bool, warm_start: bool, seed: int
) -> None:
    """What all ranks computed is what was sent, plus what they still keep."""
    gradients = random_gradients(shapes, ranks, 7, seed=seed)
    numel = sum(map(prod, shapes))
    run = Run(
        layerwise_powersgd if layerwise else batched_powersgd,
        shapes,
        gradients,
        matrix_approximation_rank=min(rank, square_side(numel)),
        min_compression_rate=0.5,
        start_powerSGD_iter=3,
        warm_start=warm_start,
        survive_zero_matrices=True,  # a bucket of two elements is a square with a row of zeros
    )
    sent = sum(run.results[3:])
    for mine in range(ranks):
        kept = run.states[mine].error_dict[0]
        torch.testing.assert_close(sent + kept[:numel], sum(step[mine] for step in gradients[3:]))
        assert len(kept) == (numel if layerwise else square_side(numel) ** 2)


@BOTH
@pytest.mark.parametrize("start", [2, 4])
def test_steps_before_the_start_are_the_exact_mean(algorithm: Algorithm, start: int) -> None:
    gradients = random_gradients(SHAPES, 3, start + 1)
    run = Run(algorithm, SHAPES, gradients, start_powerSGD_iter=start)
    labels = [call.label for call in run.fabric.calls if call.rank == 0]
    assert labels[:start] == ["powersgd.vanilla"] * start
    assert "powersgd.vanilla" not in labels[start:]
    for step in range(start):
        torch.testing.assert_close(run.results[step], sum(gradients[step]) / 3)
    assert not torch.allclose(run.results[start], torch.stack(gradients[start]).mean(0), atol=1e-2)


@BOTH
def test_ranks_get_equal_bits(algorithm: Algorithm) -> None:
    run = Run(algorithm, SHAPES, random_gradients(SHAPES, 4, 5, dtype=torch.float32), start_powerSGD_iter=2)
    for results in run.by_rank[1:]:
        assert all(torch.equal(mine, first) for mine, first in zip(results, run.results, strict=True))


@BOTH
def test_a_matrix_of_low_rank_is_sent_whole(algorithm: Algorithm) -> None:
    shapes = [(20, 20)]
    gradients = random_gradients(shapes, 2, 3)
    left, right = random_gradients([(20,)], 2, 1)[0]
    gradients[2] = [torch.outer(left, right).reshape(-1), torch.outer(3 * left, right).reshape(-1)]
    run = Run(algorithm, shapes, gradients, start_powerSGD_iter=2)
    torch.testing.assert_close(run.results[2], sum(gradients[2]) / 2)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"matrix_approximation_rank": 3},
    {"use_error_feedback": False},
    {"warm_start": False},
    {"batch_tensors_with_same_shape": True, "matrix_approximation_rank": 2},
    {"survive_zero_matrices": True, "matrix_approximation_rank": 2},
    {"min_compression_rate": 1000.0},
]


@BOTH
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_meta_run_issues_the_same_as_one_with_values(
    algorithm: Algorithm, options: dict[str, Any], dtype: torch.dtype
) -> None:
    gradients = random_gradients(SHAPES, 2, 5, dtype=dtype)
    values = Run(algorithm, SHAPES, gradients, start_powerSGD_iter=2, **options)
    sizes = Run(algorithm, SHAPES, gradients, device="meta", start_powerSGD_iter=2, **options)
    assert list_issued(sizes.fabric) == list_issued(values.fabric) == list_issued(values.fabric, rank=1)
    assert all(result.is_meta for result in sizes.results)
    assert sizes.states[0].compression_stats() == values.states[0].compression_stats()
    assert sizes.states[0].next_seed() == values.states[0].next_seed()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_matrix_that_lies_column_by_column_is_compressed_as_it_is(options: dict[str, Any]) -> None:
    """DDP's buckets keep a parameter's order in memory."""
    shapes = [(12, 10), (7,), (9, 20), (12, 10)]
    of_steps = random_gradients(shapes, 1, 5)

    async def program(rank: Any, transposed: bool) -> list[list[Tensor]]:
        state, results = PowerSGDState(start_powerSGD_iter=2, **options), []
        for (values,) in of_steps:
            views = unflatten(values.clone(), shapes)
            order = [view.t().contiguous().t() if transposed and view.dim() == 2 else view for view in views]
            bucket = Strided(order)
            await layerwise_powersgd(rank, state, bucket)
            results.append([gradient.clone() for gradient in bucket.gradients()])
        return results

    (plain,), _ = play(lambda rank: program(rank, False), 1)
    (mine,), _ = play(lambda rank: program(rank, True), 1)
    for step, expected in zip(mine, plain, strict=True):
        for one, other in zip(step, expected, strict=True):
            torch.testing.assert_close(one, other)


class Strided:
    """A bucket of gradients, each in its own order in memory."""

    def __init__(self, gradients: list[Tensor]) -> None:
        self._buffer = torch.cat(
            [each.t().reshape(-1) if each.t().is_contiguous() else each.reshape(-1) for each in gradients]
        )
        pieces = self._buffer.split([each.numel() for each in gradients])
        self._gradients = [
            piece.as_strided(each.shape, each.stride(), piece.storage_offset())
            for piece, each in zip(pieces, gradients, strict=True)
        ]

    def index(self) -> int:
        return 0

    def buffer(self) -> Tensor:
        return self._buffer

    def gradients(self) -> list[Tensor]:
        return self._gradients

    def is_last(self) -> bool:
        return True


def test_layerwise_always_reduces_thrice() -> None:
    for shapes in ([(5,)], [(40, 40)], [(40, 40), (5,)]):
        run = Run(layerwise_powersgd, shapes, random_gradients(shapes, 2, 3), start_powerSGD_iter=2)
        sent = [(call.label, call.bytes_in // 8) for call in run.fabric.calls if call.rank == 0][2:]
        low = 40 if (40, 40) in shapes else 0
        plain = 5 if (5,) in shapes else 0
        assert sent == [("powersgd.uncompressed", plain), ("powersgd.P", low), ("powersgd.Q", low)]


def test_a_matrix_is_compressed_if_that_sends_fewer_elements_by_the_rate() -> None:
    def compress(shape: tuple[int, ...], rank: int, rate: float) -> bool:
        return bool(lay_out((shape,), rank, rate).shapes)

    assert not compress((4, 4), 1, 2.0)  # 2 (4 + 4) is just 4 * 4
    assert compress((4, 4), 1, 1.99)
    assert compress((2, 30), 8, 0.8)  # 8 columns would not pay, but the matrix has no more than 2
    assert not compress((1000,), 1, 1.0)
    assert not compress((), 1, 0.5)  # a number is a matrix of one element
    assert lay_out(((3, 4, 5), (7,), (6, 9), (3, 20)), 1, 1.0).members == ((0, 3), (2,))


def test_batching_changes_draws_but_not_what_is_sent() -> None:
    gradients = random_gradients(SHAPES, 2, 4)
    options: dict[str, Any] = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}
    plain = Run(layerwise_powersgd, SHAPES, gradients, **options)
    batched = Run(layerwise_powersgd, SHAPES, gradients, batch_tensors_with_same_shape=True, **options)
    assert [(call.label, call.bytes_in) for call in plain.fabric.calls if call.rank == 0] == [
        (call.label, call.bytes_in) for call in batched.fabric.calls if call.rank == 0
    ]
    seconds = [unflatten(run.results[2], SHAPES)[3] for run in (plain, batched)]  # the second of its shape
    assert not torch.equal(*seconds)


@BOTH
@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("use_error_feedback", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 1e-8])
def test_training_survives_zero_gradients_with_the_option(
    algorithm: Algorithm, rank: int, use_error_feedback: bool, epsilon: float
) -> None:
    shapes = [(20, 20), (9, 20), (20,)]
    gradients = random_gradients(shapes, 2, 10, dtype=torch.float32)
    mask = torch.ones(sum(map(prod, shapes)))
    mask[:20] = 0  # a row that never learns, so that no fixed unit vector may stand in for a lost column
    mask[0:400:20] = 0
    gradients = [[each * mask for each in step] for step in gradients]
    for zero_at in (2, 5):
        gradients[zero_at] = [torch.zeros_like(each) for each in gradients[zero_at]]
    run = Run(
        algorithm,
        shapes,
        gradients,
        survive_zero_matrices=True,
        matrix_approximation_rank=rank,
        start_powerSGD_iter=2,
        use_error_feedback=use_error_feedback,
        orthogonalization_epsilon=epsilon,
    )
    assert all(result.isfinite().all() for result in run.results)
    assert torch.equal(run.results[2], torch.zeros_like(run.results[2]))
    for result in run.results[6:]:
        matrix = unflatten(result, shapes)[0]
        assert matrix.norm() > 0.1
        assert torch.linalg.matrix_rank(matrix) >= (rank if algorithm is layerwise_powersgd else 1)


@BOTH
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_surviving_changes_no_bit_of_healthy_matrices(algorithm: Algorithm, rank: int) -> None:
    gradients = random_gradients(SHAPES, 2, 6, dtype=torch.float32)
    options: dict[str, Any] = {"matrix_approximation_rank": rank, "start_powerSGD_iter": 2}
    plain = Run(algorithm, SHAPES, gradients, **options)
    safe = Run(algorithm, SHAPES, gradients, survive_zero_matrices=True, **options)
    assert all(torch.equal(mine, other) for mine, other in zip(plain.results, safe.results, strict=True))


def test_kernels_cost_what_the_algorithm_does() -> None:
    """One step on a 20 x 20 matrix with rank 2, float64, counted by hand."""
    run = Run(
        batched_powersgd,
        [(400,)],
        random_gradients([(400,)], 1, 4),
        matrix_approximation_rank=2,
        start_powerSGD_iter=2,
    )
    fourth_step = [(label, kernel) for _, label, kernel in run.fabric.kernels][-8:]
    assert [label.removeprefix("powersgd.") for label, _ in fourth_step] == [
        *("add_error", "orthogonalise", "compress", "orthogonalise", "project", "divide", "decompress", "keep_error")
    ]
    by_label = dict(fourth_step)
    for label in ("powersgd.compress", "powersgd.project", "powersgd.decompress"):
        assert by_label[label].flops == 2 * 400 * 2
    assert by_label["powersgd.compress"].bytes_read == 8 * (400 + 40)
    assert by_label["powersgd.compress"].bytes_written == 8 * 40
    assert by_label["powersgd.decompress"].bytes_written == 8 * 400
    assert by_label["powersgd.add_error"].bytes_read == 8 * 800
    assert {kernel.dtype for kernel in by_label.values()} == {"float64"}

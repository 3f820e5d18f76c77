from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.compression.orthogonalise import orthogonalise, refill_zero_columns
from tests.lanes import examples


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@examples(60)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 20), st.booleans(), st.integers(0, 1000))
def test_columns_are_orthonormal_and_span_the_same(stack: int, columns: int, more: int, safe: bool, seed: int) -> None:
    matrices = random(stack, columns + more, columns, seed=seed)
    result = matrices.clone()
    orthogonalise(result, 0.0, safe)
    torch.testing.assert_close(result.mT @ result, torch.eye(columns).double().expand(stack, -1, -1))
    torch.testing.assert_close(result @ (result.mT @ matrices), matrices)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_stack_is_made_orthogonal_as_each_of_its_matrices(columns: int) -> None:
    stack = random(3, 7, columns)
    each = [matrix.clone() for matrix in stack]
    orthogonalise(stack)
    for matrix, expected in zip(each, stack, strict=True):
        orthogonalise(matrix)
        torch.testing.assert_close(matrix, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_gram_schmidt_with_any_number_of_columns(dtype: torch.dtype) -> None:
    matrices = random(9, 5, dtype=dtype)
    orthogonalise(matrices)
    product = matrices.double().mT @ matrices.double()
    torch.testing.assert_close(product, torch.eye(5).double(), atol=5e-2, rtol=0)


def test_epsilon_is_added_to_the_norm() -> None:
    column = torch.tensor([[3.0], [4.0]])
    orthogonalise(column, 5.0)
    torch.testing.assert_close(column, torch.tensor([[0.3], [0.4]]))


def test_zero_columns_become_nan_or_zero_by_option() -> None:
    plain, safe = torch.zeros(4, 2), torch.zeros(4, 2)
    orthogonalise(plain)
    orthogonalise(safe, 0.0, zero_vanished=True)
    assert plain.isnan().all()
    assert torch.equal(safe, torch.zeros(4, 2))


def test_dependent_column_becomes_zero_only_with_the_option() -> None:
    column = random(50, 1, dtype=torch.float32)
    plain = torch.cat([column, column * 3], dim=1)
    safe = plain.clone()
    orthogonalise(plain)
    orthogonalise(safe, 0.0, zero_vanished=True)
    assert torch.equal(safe[:, 1], torch.zeros(50))
    assert torch.equal(safe[:, 0], plain[:, 0])
    assert math.isclose(float(plain[:, 1].norm()), 1, rel_tol=1e-3) or plain[:, 1].isnan().all()


def test_refill_touches_zero_columns_only() -> None:
    matrices = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]])
    reserve = torch.full((2, 2, 2), 7.0)
    refill_zero_columns(matrices, reserve)
    assert matrices.tolist() == [[[1, 7], [0, 7]], [[7, 2], [7, 0]]]

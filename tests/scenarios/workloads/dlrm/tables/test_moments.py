"""Rows with moments by themselves: what becomes of those that no id names, of halves, and of what is not to move."""

from __future__ import annotations

import pytest
import torch

from scenarios.config.scenario import Optimizer, OptimizerKind
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places
from scenarios.workloads.dlrm.tables.moments import Moments

WITH_MOMENTS: tuple[OptimizerKind, ...] = ("adam", "partial_rowwise_adam", "lamb", "partial_rowwise_lamb")
PLACES = Places.of([3, 2], [4, 2])
# Three bags a piece; row 1 of the first piece is named by none.
NAMED = Named(torch.tensor([0, 2, 0, 1, 0]), torch.tensor([1, 1, 1, 2, 0, 0]))
ZEROS = torch.zeros(3, 6)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def train(weights: torch.Tensor, kind: OptimizerKind, **changes: float) -> Moments:
    moments = Moments(Optimizer(kind=kind, learning_rate=0.05, **changes), weights, PLACES)  # type: ignore[arg-type]
    for _ in range(3):
        moments.update(NAMED, draw(3, 6))
    return moments


@pytest.mark.parametrize("kind", WITH_MOMENTS)
def test_rows_that_no_id_names_stay(kind: OptimizerKind) -> None:
    weights, before = draw(16), draw(16)
    moments = train(weights, kind, weight_decay=0.1)
    is_still = weights == before
    assert is_still.tolist() == [4 <= at < 8 for at in range(16)]
    assert (moments.means == 0).tolist() == is_still.tolist()


@pytest.mark.parametrize("kind", WITH_MOMENTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_halves_have_moments_of_float32(kind: OptimizerKind, dtype: torch.dtype) -> None:
    wide, half = draw(16), draw(16).to(dtype)
    moments = [train(each, kind) for each in (wide, half)]
    for name in ("means", "squares"):
        ours, theirs = (getattr(each, name) for each in moments)
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(half.float(), wide, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", WITH_MOMENTS)
def test_rows_whose_first_gradient_is_0_stay(kind: OptimizerKind) -> None:
    """As of copies whose rows nobody names, or in a step whose scaled losses overflow: LAMB's ratio would be 0 / 0."""
    for update in (lambda moments: moments.update_all(torch.zeros(16)), lambda moments: moments.update(NAMED, ZEROS)):
        weights = draw(16)
        update(Moments(Optimizer(kind=kind), weights, PLACES))
        assert torch.equal(weights, draw(16))


@pytest.mark.parametrize(("kind", "states"), [("adam", 16), ("lamb", 16), ("partial_rowwise_adam", 5)])
def test_squares_are_kept_by_element_or_by_row(kind: OptimizerKind, states: int) -> None:
    assert Moments(Optimizer(kind=kind), draw(16), PLACES).squares.numel() == states

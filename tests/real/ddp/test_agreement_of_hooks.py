"""PowerSGD is the same on the simulator, on real ranks and in torch's own hooks, whatever the shapes and options."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as shipped

from real.ddp.hooks import PowerSGDState
from scenarios.compression import PowerSGDState as CoroutineState
from scenarios.compression import batched_powersgd, layerwise_powersgd
from scenarios.compression.batched import square_side
from scenarios.modules.ddp_buckets import GradientBucket
from scenarios.seam.rank import Rank
from tests.contract.worlds import results
from tests.lanes import examples
from tests.real.ddp.scripts import HOOKS

Shape = tuple[int, ...]
RANKS, STEPS = 2, 4
ALGORITHMS: dict[str, Callable[..., Any]] = {"batched": batched_powersgd, "layerwise": layerwise_powersgd}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 5e-2}

shapes = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 40)),
        st.tuples(st.integers(2, 30), st.integers(2, 30)),
        st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=5,
).flatmap(lambda some: st.sampled_from([some, [*some, some[0]], [some[0], *some]]))


@st.composite
def cases(draw: Any) -> tuple[str, list[Shape], torch.dtype, dict[str, Any], int]:
    extents = draw(shapes)
    hook = draw(st.sampled_from(sorted(ALGORITHMS)))
    side = square_side(sum(map(prod, extents)))
    # A bucket of zeros at its end has a square of less than full rank, whose last columns are rounding's.
    rank = draw(st.integers(1, max(1, min(4, side // 2)))) if hook == "batched" else draw(st.integers(1, 4))
    options = {
        "matrix_approximation_rank": rank,
        "start_powerSGD_iter": 2,
        "min_compression_rate": draw(st.sampled_from([0.5, 1.0, 2.0])),
        "use_error_feedback": draw(st.booleans()),
        "warm_start": draw(st.booleans()),
        "orthogonalization_epsilon": draw(st.sampled_from([0, 1e-8, 1e-3])),
        "random_seed": draw(st.integers(0, 9)),
        "batch_tensors_with_same_shape": draw(st.booleans()),
    }
    return hook, extents, draw(st.sampled_from(sorted(TOLERANCE, key=str))), options, draw(st.integers(0, 999))


class TheirBucket(GradientBucket):
    """With what torch's hooks ask besides, and what ours ask of DDP's."""

    def __init__(self, buffer: Tensor, extents: list[Shape], parameters: list[Tensor]) -> None:
        super().__init__(0, buffer, extents, is_last=True)
        self._parameters = parameters

    def parameters(self) -> list[Tensor]:
        return self._parameters


def gradients(rank: int, step: int, extents: list[Shape], dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + 10 * step + rank)
    return torch.randn(sum(map(prod, extents)), generator=generator, dtype=torch.float64).to(dtype)


async def as_coroutine(
    rank: Rank, hook: str, extents: list[Shape], dtype: torch.dtype, options: dict[str, Any], seed: int
) -> list[Tensor]:
    state, found = CoroutineState(**options), []
    for step in range(STEPS):
        bucket = GradientBucket(0, gradients(rank.rank, step, extents, dtype, seed), extents, is_last=True)
        found.append((await ALGORITHMS[hook](rank, state, bucket)).clone())
    return [*found, *state.error_dict.values()]


async def as_hook(
    rank: Rank, hook: str, extents: list[Shape], dtype: torch.dtype, options: dict[str, Any], seed: int
) -> list[Tensor]:
    return _run_hook(rank.rank, HOOKS[hook], PowerSGDState(**options), extents, dtype, seed)


async def as_torch(
    rank: Rank, hook: str, extents: list[Shape], dtype: torch.dtype, options: dict[str, Any], seed: int
) -> list[Tensor]:
    logging.disable(logging.WARNING)
    broken = shipped._orthogonalize
    shipped._orthogonalize = lambda matrix, epsilon=0: broken(matrix if matrix.dim() == 3 else matrix[None], epsilon)
    theirs = {"batched": shipped.batched_powerSGD_hook, "layerwise": shipped.powerSGD_hook}[hook]
    try:
        return _run_hook(rank.rank, theirs, shipped.PowerSGDState(dist.group.WORLD, **options), extents, dtype, seed)
    finally:
        shipped._orthogonalize = broken
        logging.disable(logging.NOTSET)


def _run_hook(
    rank: int, hook: Callable[..., Any], state: Any, extents: list[Shape], dtype: torch.dtype, seed: int
) -> list[Tensor]:
    parameters, found = [torch.zeros(extent, dtype=dtype) for extent in extents], []
    for step in range(STEPS):
        bucket = TheirBucket(gradients(rank, step, extents, dtype, seed), extents, parameters)
        found.append(hook(state, bucket).wait().clone())
    return [*found, *state.error_dict.values()]


def alike(ours: list[Tensor], theirs: list[Tensor], dtype: torch.dtype) -> None:
    assert len(ours) == len(theirs)
    scale = max(float(tensor.double().abs().max()) for tensor in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            mine.double().view(-1), other.double().view(-1), rtol=0, atol=10 * TOLERANCE[dtype] * scale
        )


@examples(8)
@given(cases())
def test_powersgd_is_the_same_in_the_simulation_and_on_real_ranks(case: Any) -> None:
    simulated = results("sim", 1, RANKS, as_coroutine, *case)
    played = results("real", 1, RANKS, as_coroutine, *case)
    for one, other in zip(simulated, played, strict=True):
        alike(one, other, case[2])


@examples(8)
@given(cases())
def test_hooks_equal_torchs_hooks(case: Any) -> None:
    ours, theirs = results("real", 1, RANKS, as_hook, *case), results("real", 1, RANKS, as_torch, *case)
    for one, other in zip(ours, theirs, strict=True):
        alike(one, other, case[2])

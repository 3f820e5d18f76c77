from __future__ import annotations

from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from sim.operators.laws import seconds
from tests.sim.operators.rows import H200, MEASURING_US, mean_error, on_every_gpu


def triangle(samples: int, features: int) -> Index:
    """z[:, i, j] of [samples, features, features] below its diagonal."""
    pairs = features * (features - 1) // 2
    return Index(elements=samples * pairs, dtype="float32", indices=2, source_elements=samples * features**2)


def triangle_backward(samples: int, features: int) -> IndexPut:
    return IndexPut(
        slices=samples,
        count=features * (features - 1) // 2,
        inner=1,
        dtype="float32",
        target_elements=samples * features**2,
        is_contiguous=False,
    )


# One H200, torch 2.11, 2026-11-26: single operators between events, us.
OPERATORS = [(triangle(8192, 27), 23.04), (triangle(65536, 27), 135.232)]
# The same machine: kernels in steps, us; the backward passes' sums and, of one, all of its kernels.
INDEX_KERNELS = [(triangle(8192, 27), 19.0)]
WALKS = [
    (triangle_backward(8192, 27), 623.0),
    (triangle_backward(65536, 27), 5449.2),
    (triangle_backward(4096, 21), 175.8),
    (triangle_backward(4096, 27), 292.0),
]
BACKWARD = [(triangle_backward(8192, 27), 648.8)]
EMBEDDING = [(EmbeddingBackward(ids=16384, dim=768, dtype="float32", table_rows=50304), 351.0)]
GATHERS = [(Gather(rows=16384, dim=768, dtype="float32"), 27.0)]


def walk_seconds(call: IndexPut, gpu: Gpu) -> float:
    """The last kernel alone: what is left of the time without slices."""
    return seconds(replace(call, is_contiguous=True), gpu) - seconds(replace(call, slices=0, is_contiguous=True), gpu)


def test_operators_of_an_h200_are_within_5_percent() -> None:
    assert mean_error(seconds, OPERATORS, H200, MEASURING_US) < 0.05


def test_kernels_in_steps_of_an_h200_are_within_8_percent() -> None:
    assert mean_error(seconds, INDEX_KERNELS, H200) < 0.08
    assert mean_error(walk_seconds, WALKS, H200) < 0.04
    assert mean_error(seconds, BACKWARD, H200) < 0.04
    assert mean_error(seconds, EMBEDDING, H200) < 0.08
    assert mean_error(seconds, GATHERS, H200) < 0.12


@on_every_gpu
def test_more_rows_never_take_less(on: Gpu) -> None:
    counts = [1 << power for power in range(0, 22, 3)]
    for times in (
        [seconds(Gather(rows=each, dim=128, dtype="float32"), on) for each in counts],
        [seconds(Index(elements=each, dtype="float32"), on) for each in counts],
        [seconds(triangle_backward(each, 27), on) for each in counts],
        [seconds(replace(EMBEDDING[0][0], ids=each), on) for each in counts],
        [seconds(ScatterAdd(elements=e, dtype="float32", target_elements=1 << 20), on) for e in counts],
    ):
        assert times == sorted(times)


@on_every_gpu
def test_repeated_rows_and_contiguous_values_are_never_slower(on: Gpu) -> None:
    call = Gather(rows=1 << 16, dim=128, dtype="float32")
    assert seconds(replace(call, unique=100), on) <= seconds(call, on)
    put = triangle_backward(1024, 27)
    assert seconds(replace(put, is_contiguous=True), on) < seconds(put, on)


def test_more_multiprocessors_are_never_slower() -> None:
    larger = replace(H200, multiprocessors=160, flops_per_s={"float32": H200.flops_per_s["float32"] * 160 / 132})
    for call in (triangle_backward(8192, 27), triangle_backward(100, 200)):
        assert seconds(call, larger) <= seconds(call, H200)

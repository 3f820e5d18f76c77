"""What holds of every law on every GPU: more of anything never takes less time, and what saves work never more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward, uniform
from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous
from scenarios.seam.operations.pointwise import strided_call as by_strides
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermuteSparse, Scan, Sort
from sim.operators.chip import chip_of
from sim.operators.laws import seconds
from sim.operators.sorting import radix_s
from tests.sim.operators.rows import EVERY, H200, mean_error, on_every_gpu


def bags(tables: int = 8, dim: int = 128, samples: int = 4096, length: int = 10) -> Bags:
    return uniform(tables=tables, rows=1_000_000, dim=dim, bags=samples, length=length)


def cat(elements: int, *, is_contiguous: bool = False) -> Cat:
    return Cat(dtype="float32", elements=elements, inputs=2, contiguous=is_contiguous, dims=2)


def add(elements: int) -> Pointwise:
    return contiguous("add", elements, "float32", inputs=2)


def mixed_add(elements: int) -> Pointwise:
    """float32 + bfloat16."""
    wide, narrow = (Operand(dtype=dtype, elements=elements) for dtype in ("float32", "bfloat16"))
    return Pointwise(name="add", elements=elements, inputs=(wide, narrow), outputs=(wide,))


def make_strided(name: str, operands: tuple[tuple[int, int], ...], dims: int) -> Pointwise:
    """Operands as (elements, stride), the result last."""
    *inputs, output = (Operand(dtype="float32", elements=elements, stride=stride) for elements, stride in operands)
    return Pointwise(name=name, elements=output.elements, inputs=tuple(inputs), outputs=(output,), dims=dims)


def over_rows(rows: int, columns: int) -> Reduction:
    return Reduction(name="sum", dtype="float32", outer=1, reduced=rows, inner=columns)


def softmax(rows: int, dim: int, *, backward: bool = False) -> Softmax:
    return Softmax(rows=rows, dim=dim, dtype="float32", backward=backward)


def norm(rows: int, dim: int, *, backward: bool = False) -> RowNorm:
    return RowNorm(rows=rows, dim=dim, dtype="float32", backward=backward)


def triangle_backward(samples: int, features: int, *, is_contiguous: bool = False) -> IndexPut:
    """Return the gradient of z[:, i, j] of [samples, features, features] below its diagonal."""
    return IndexPut(
        slices=samples,
        count=features * (features - 1) // 2,
        inner=1,
        dtype="float32",
        target_elements=samples * features**2,
        is_contiguous=is_contiguous,
    )


def foreach(numels: tuple[int, ...], read: int = 2) -> Foreach:
    return Foreach(name="_foreach_add_", dtype="float32", numels=numels, lists=2, read=read, written=1)


def powers(until: int, base: int = 8, first: int = 0) -> list[int]:
    return [base**power for power in range(first, until)]


MLP = (4096 * 4096, 4096) * 8
LENGTHS, SAMPLES, DIMS = (1, 2, 5, 10, 31, 64, 200), (64, 512, 4096, 32768), (32, 64, 128, 256, 512, 1024)
# What grows, and how far.
GROWING: dict[str, tuple[Callable[[int], Operation], Sequence[int]]] = {
    **{
        f"{kind.__name__} by {name}": (lambda n, kind=kind, name=name: kind(bags=bags(**{name: n})), sizes)  # type: ignore[misc]
        for kind in (BagsForward, BagsBackward)
        for name, sizes in (("length", LENGTHS), ("samples", SAMPLES), ("dim", DIMS), ("tables", (1, 8, 26, 200)))
    },
    "cat": (cat, powers(11)),
    "cat of whole inputs": (lambda n: cat(n, is_contiguous=True), powers(11)),
    "copy to the GPU": (lambda n: HostCopy(size_bytes=n, to_gpu=True), powers(11)),
    "collective of one rank": (lambda n: OneRankCollective(size_bytes=n, in_place=False), powers(11)),
    **{
        f"{make.__name__} of {dim}, backward {back}": (  # type: ignore[misc]
            lambda n, make=make, dim=dim, back=back: make(n, dim, backward=back),
            powers(7 if make is softmax else 5),
        )
        for make in (softmax, norm)
        for dim in (13, 768, 1024, 1600, 4096, 50304)
        for back in (False, True)
    },
    "losses": (lambda n: NllLoss(rows=n, classes=100, dtype="float32", backward=True), powers(7)),
    "foreach": (lambda n: foreach((n,) * 3), powers(11)),
    "add": (add, powers(9, 10)),
    "add of two dtypes": (mixed_add, powers(9, 10)),
    "gelu": (lambda n: contiguous("gelu", n, "bfloat16"), powers(9, 10)),
    # Small reductions need not: more elements are divided among more blocks.
    "sum": (lambda n: over_rows(n, 1), powers(11, first=8)),
    "sum of long columns": (lambda n: over_rows(n // 128, 128), powers(11, first=8)),
    "sum of 1,024 rows": (lambda n: over_rows(1024, n // 1024), powers(11, first=8)),
    "qr": (lambda n: Qr(rows=4096, columns=n), powers(8, 2)),
    "gather": (lambda n: Gather(rows=n, dim=128, dtype="float32"), powers(8)),
    "index": (lambda n: Index(elements=n, dtype="float32"), powers(8)),
    "index_put": (lambda n: triangle_backward(n, 27), powers(8)),
    "embedding": (lambda n: EmbeddingBackward(ids=n, dim=768, dtype="float32", table_rows=50304), powers(8)),
    "scatter_add": (lambda n: ScatterAdd(elements=n, dtype="float32", target_elements=1 << 20), powers(8)),
    "sort": (lambda n: Sort(elements=n), powers(9)),
    "scan": (lambda n: Scan(elements=n), powers(9)),
    "permute": (lambda n: PermuteSparse(bags=n, ids=n), powers(9)),
    "bucketize": (lambda n: BucketizeSparse(bags=n, ids=n, buckets=8), powers(9)),
}


@pytest.mark.parametrize("name", GROWING)
def test_more_of_anything_never_takes_less(name: str) -> None:
    make, sizes = GROWING[name]
    for on in EVERY:
        times = [seconds(make(size), on) for size in sizes]
        assert times == sorted(times), on.name


N = 1 << 22
IDS = bags(length=20)
BATCH = BatchNorm(elements=1 << 26, channels=256, dtype="bfloat16")
POOL = Pool(dtype="float16", inputs=1 << 26, outputs=1 << 24, window=9, with_indices=True)
ROWS = Gather(rows=1 << 16, dim=128, dtype="float32")
BUCKETIZE = BucketizeSparse(bags=1 << 15, ids=1 << 18)
# Operators in the order of their times, each longer than the one before it.
LONGER: dict[str, tuple[Operation, ...]] = {
    "pageable memory": (HostCopy(size_bytes=4096, to_gpu=True), HostCopy(size_bytes=4096, to_gpu=True, pinned=False)),
    "batch norm": (replace(BATCH, training=False), BATCH, replace(BATCH, backward=True)),
    **{f"backward of {dim}": (norm(4096, dim), norm(4096, dim, backward=True)) for dim in (1024, 8192)},
    "more lists": (foreach(MLP), foreach(MLP, read=3)),
    "values apart": (triangle_backward(1024, 27, is_contiguous=True), triangle_backward(1024, 27)),
    "more rows looked up": tuple(BagsForward(bags=replace(IDS, unique=IDS.unique // by)) for by in (10, 1)),
    "pool backward": (POOL, replace(POOL, backward=True)),
    "more buckets": (BUCKETIZE, replace(BUCKETIZE, buckets=64)),
}
# Likewise, but they may take equally long.
NEVER_QUICKER: dict[str, tuple[Operation, ...]] = {
    "strides": (contiguous("copy_", N, "float32"), make_strided("copy_", ((N, 1), (N, 1)), 3)),
    "distant elements": (contiguous("copy_", N, "float32"), make_strided("copy_", ((N, 64), (N, 1)), 3)),
    "two dtypes": (contiguous("add", N, "bfloat16", inputs=2), mixed_add(N)),
    **{f"cat of {n}": (cat(n, is_contiguous=True), cat(n)) for n in powers(11)},
    "one more tensor": (foreach(MLP), foreach((*MLP, 4096))),
    "more distinct rows": (replace(ROWS, unique=100), ROWS),
    "larger windows": (replace(POOL, with_indices=False), POOL, replace(POOL, window=49)),
    "more state": tuple(BagsBackward(bags=IDS, optimizer=name) for name in ("sgd", "adagrad", "adam")),
    "weights": (BagsForward(bags=IDS), BagsForward(bags=replace(IDS, weighted=True))),
}


@pytest.mark.parametrize("name", [*LONGER, *NEVER_QUICKER])
def test_more_work_takes_longer(name: str) -> None:
    for on in EVERY:
        times = [seconds(each, on) for each in {**LONGER, **NEVER_QUICKER}[name]]
        assert times == sorted(times), on.name
        assert name in NEVER_QUICKER or len(set(times)) == len(times), on.name


@on_every_gpu
def test_no_reduction_is_quicker_than_memory(on: Gpu) -> None:
    for call in (over_rows(1 << 28, 1), over_rows(1 << 14, 1 << 14), over_rows(1 << 8, 1 << 20)):
        assert seconds(call, on) > call.reduced * call.inner * 4 / on.memory_bytes_per_s


@on_every_gpu
def test_a_sort_of_more_bits_never_takes_less(on: Gpu) -> None:
    times = [radix_s(1 << 20, bits, chip_of(on)) for bits in range(1, 65)]
    assert times == sorted(times)


def test_sorts_in_backward_passes_of_an_h200_are_within_8_percent() -> None:
    """Ids, bits and us of kernels of sorts with their memsets (2026-11-26)."""
    rows = ((16384, 64, 71.0), (212992, 25, 50.5), (327680, 23, 42.5), (1638400, 23, 88.5), (351, 64, 5.8))
    assert mean_error((radix_s(keys, bits, chip_of(H200)) * 1e6, us) for keys, bits, us in rows) < 0.08


def test_sums_of_a_backward_pass_alone_are_within_4_percent_on_an_h200() -> None:
    """The last kernel alone: what is left of the time without slices; samples, features and us (2026-11-26)."""
    pairs = []
    for samples, features, us in ((8192, 27, 623.0), (65536, 27, 5449.2), (4096, 21, 175.8), (4096, 27, 292.0)):
        call = triangle_backward(samples, features, is_contiguous=True)
        pairs.append((1e6 * (seconds(call, H200) - seconds(replace(call, slices=0), H200)), us))
    assert mean_error(pairs) < 0.04


def faster_memory(factor: float) -> Gpu:
    return replace(H200, memory_bytes_per_s=factor * H200.memory_bytes_per_s)


def test_many_long_rows_are_bound_by_memory() -> None:
    call = Reduction(name="sum", dtype="float32", outer=1 << 16, reduced=1 << 12, inner=1)
    assert seconds(call, faster_memory(2)) < 0.7 * seconds(call, H200)


def test_a_collective_of_one_rank_in_place_takes_no_time() -> None:
    assert seconds(OneRankCollective(size_bytes=1 << 30, in_place=True), H200) == 0


def test_more_multiprocessors_never_slow_a_backward_pass_of_an_index() -> None:
    larger = replace(H200, multiprocessors=160, flops_per_s={"float32": H200.flops_per_s["float32"] * 160 / 132})
    for call in (triangle_backward(8192, 27), triangle_backward(100, 200)):
        assert seconds(call, larger) <= seconds(call, H200)


def test_neighbouring_dimensions_are_merged() -> None:
    """The bias of a transposed gradient: [8192, 27, 128] + a view of [8192, 128, 27]."""
    shape, whole = (8192, 27, 128), 28311552
    plain, turned, row = (("float32", strides) for strides in ((3456, 128, 1), (3456, 1, 27), (0, 0, 1)))

    def added(*operands: tuple[int, int], dims: int) -> Any:
        return make_strided("add", operands, dims)

    assert by_strides("add", shape, [plain, turned], [plain]) == added((whole, 1), (whole, 27), (whole, 1), dims=3)
    assert by_strides("add", shape, [plain, plain], [plain]) == add(whole)
    assert by_strides("add", shape, [plain, row], [plain]) == added((whole, 1), (128, 1), (whole, 1), dims=2)
    number = by_strides("mul", (16,), [("float32", (1,)), ("float32", (0,))], [("float32", (1,))])
    assert (number.dims, number.inputs[1].elements) == (2, 1)
    assert by_strides("mul", (), [("float32", ())], [("float32", ())]).dims == 1

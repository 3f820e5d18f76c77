from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.bags import BagsBackward, BagsForward, uniform
from scenarios.seam.operations.moves import Cat
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut
from scenarios.seam.operations.sorting import PermuteSparse, Scan, Sort
from sim.operators import bags, memory, moves, normalisations, optimizers, pointwise, rows, sorting
from tests.sim.operators.rows import H200, Law, on_every_gpu

IDS = uniform(tables=8, rows=1_000_000, dim=128, bags=4096, length=10)
PUT = IndexPut(slices=4096, count=351, inner=1, dtype="float32", target_elements=4096 * 729)
# One call of each law that more multiprocessors cannot slow down: sums are divided among more blocks then, and blocks
# of more rows leave less of L2 to each.
CALLS: list[tuple[Law, Any]] = [
    (pointwise.seconds, contiguous("gelu", 1 << 24, "bfloat16")),
    (pointwise.seconds, contiguous("add", 1 << 24, "float32", inputs=2)),
    (moves.cat_seconds, Cat(dtype="float32", elements=1 << 24, inputs=26, contiguous=False)),
    (optimizers.seconds, Foreach(name="_fused_adam_", dtype="float32", numels=(1 << 24,), lists=4, read=4, written=3)),
    (normalisations.batch_norm_seconds, BatchNorm(elements=1 << 24, channels=64, dtype="float16")),
    (normalisations.nll_loss_seconds, NllLoss(rows=8192, classes=1000, dtype="float32")),
    (rows.gather_seconds, Gather(rows=1 << 16, dim=128, dtype="float32")),
    (rows.index_seconds, Index(elements=1 << 22, dtype="float32")),
    (rows.index_put_seconds, PUT),
    (rows.embedding_backward_seconds, EmbeddingBackward(ids=1 << 14, dim=768, dtype="float32", table_rows=1 << 15)),
    (sorting.sort_seconds, Sort(elements=1 << 20)),
    (sorting.scan_seconds, Scan(elements=1 << 20)),
    (sorting.permute_seconds, PermuteSparse(bags=1 << 17, ids=1 << 20)),
    (bags.forward_seconds, BagsForward(bags=IDS)),
    (bags.backward_seconds, BagsBackward(bags=IDS)),
]


@pytest.mark.parametrize(("law", "call"), CALLS, ids=lambda each: type(each).__name__)
def test_more_multiprocessors_and_memory_are_never_slower(law: Law, call: Any) -> None:
    larger = replace(H200, multiprocessors=264, flops_per_s={"float32": 2 * H200.flops_per_s["float32"]})
    assert law(call, larger) <= law(call, H200)
    assert law(call, replace(H200, memory_bytes_per_s=2 * H200.memory_bytes_per_s)) <= law(call, H200)


@pytest.mark.parametrize(("law", "call"), CALLS, ids=lambda each: type(each).__name__)
def test_equal_calls_are_one_key(law: Law, call: Any) -> None:
    assert {call: law(call, H200)}[replace(call)] == law(call, H200)


@on_every_gpu
def test_nothing_streams_faster_than_the_data_sheet(on: Gpu) -> None:
    assert memory.dram_s(1e9, 1e9, on) > 2e9 / on.memory_bytes_per_s
    assert 0.9e9 < memory.clock_hz(on) < 2.7e9


def test_figures_that_a_profile_lacks_have_defaults() -> None:
    bare = replace(H200, multiprocessors=None, l2_bytes=None, l2_bytes_per_s=None)
    for law, call in CALLS:
        assert 0 < law(call, bare) < 1

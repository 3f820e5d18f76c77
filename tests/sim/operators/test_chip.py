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
from sim.operators.chip import chip_of
from sim.operators.laws import seconds
from tests.sim.operators.rows import A100_SXM, H100, H200, on_every_gpu

IDS = uniform(tables=8, rows=1_000_000, dim=128, bags=4096, length=10)
PUT = IndexPut(slices=4096, count=351, inner=1, dtype="float32", target_elements=4096 * 729)
# One call of each law that more multiprocessors cannot slow down: sums are divided among more blocks then, and blocks
# of more rows leave less of L2 to each.
CALLS: list[Any] = [
    contiguous("gelu", 1 << 24, "bfloat16"),
    contiguous("add", 1 << 24, "float32", inputs=2),
    Cat(dtype="float32", elements=1 << 24, inputs=26, contiguous=False),
    Foreach(name="_fused_adam_", dtype="float32", numels=(1 << 24,), lists=4, read=4, written=3),
    BatchNorm(elements=1 << 24, channels=64, dtype="float16"),
    NllLoss(rows=8192, classes=1000, dtype="float32"),
    Gather(rows=1 << 16, dim=128, dtype="float32"),
    Index(elements=1 << 22, dtype="float32"),
    PUT,
    EmbeddingBackward(ids=1 << 14, dim=768, dtype="float32", table_rows=1 << 15),
    Sort(elements=1 << 20),
    Scan(elements=1 << 20),
    PermuteSparse(bags=1 << 17, ids=1 << 20),
    BagsForward(bags=IDS),
    BagsBackward(bags=IDS),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda each: type(each).__name__)
def test_more_multiprocessors_and_memory_are_never_slower(call: Any) -> None:
    larger = replace(H200, multiprocessors=264, flops_per_s={"float32": 2 * H200.flops_per_s["float32"]})
    assert seconds(call, larger) <= seconds(call, H200)
    assert seconds(call, replace(H200, memory_bytes_per_s=2 * H200.memory_bytes_per_s)) <= seconds(call, H200)


@on_every_gpu
def test_memory_streams_below_the_data_sheets_rate(on: Gpu) -> None:
    assert chip_of(on).dram_s(1e9, 1e9) > 2e9 / on.memory_bytes_per_s
    assert 0.9e9 < chip_of(on).clock_hz < 2.7e9


@on_every_gpu
def test_equal_gpus_are_one_chip(on: Gpu) -> None:
    assert chip_of(replace(on, flops_per_s=dict(on.flops_per_s))) is chip_of(on)
    faster = {name: 2 * rate for name, rate in on.flops_per_s.items()}
    assert chip_of(replace(on, flops_per_s=faster)).clock_hz == 2 * chip_of(on).clock_hz


def test_partitions_keep_copies_of_their_own_before_hopper() -> None:
    assert chip_of(A100_SXM).l2_bytes == A100_SXM.l2_bytes
    assert A100_SXM.l2_partitions == H100.l2_partitions == 2
    assert chip_of(H100).l2_bytes == 2 * (H100.l2_bytes or 0)


def test_figures_that_a_profile_lacks_have_defaults() -> None:
    bare = replace(H200, multiprocessors=None, l2_bytes=None, l2_bytes_per_s=None)
    for call in CALLS:
        assert 0 < seconds(call, bare) < 1

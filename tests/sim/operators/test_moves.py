from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from sim.operators.laws import seconds
from tests.sim.operators.rows import H200, MEASURING_US, mean_error, on_every_gpu


def cat(elements: int, inputs: int, dtype: str = "float32", *, contiguous: bool = False, dims: int = 2) -> Cat:
    return Cat(dtype=dtype, elements=elements, inputs=inputs, contiguous=contiguous, dims=dims)


# One H200, torch 2.11, 2026-11-26: kernels in steps of DLRMs and of GPT-2, us.
CATS = [
    (cat(26 * 8192 * 128, 26), 79.5),
    (cat(26 * 65536 * 128, 26), 591.3),
    (cat(20 * 4096 * 256, 20), 61.3),
    (cat(26 * 4096 * 128, 26), 43.3),
    (cat(3 * 16 * 12 * 1024 * 64, 3, "bfloat16", dims=4), 147.0),
    (cat(27 * 8192 * 128, 2, contiguous=True), 56.6),
    (cat(8192 * 479, 2, contiguous=True), 8.45),
]
# Single operators of the same machine between events, us; nothing is cached.
HOST_COPIES = [
    (HostCopy(size_bytes=4096, to_gpu=True), 7.456),
    (HostCopy(size_bytes=4096, to_gpu=False), 7.776),
    (HostCopy(size_bytes=16777216, to_gpu=True), 315.616),
    (HostCopy(size_bytes=16777216, to_gpu=False), 310.848),
]
ONE_RANK = [
    (OneRankCollective(size_bytes=4096, in_place=False), 3.712),
    (OneRankCollective(size_bytes=1048576, in_place=False), 4.352),
    (OneRankCollective(size_bytes=16777216, in_place=False), 12.576),
]


def test_concatenations_in_steps_of_an_h200_are_within_8_percent() -> None:
    assert mean_error(seconds, CATS, H200) < 0.08


def test_copies_to_and_from_the_host_are_within_3_percent() -> None:
    assert mean_error(seconds, HOST_COPIES, H200, MEASURING_US) < 0.03


def test_collectives_of_one_rank_are_within_10_percent() -> None:
    assert mean_error(seconds, ONE_RANK, H200, MEASURING_US) < 0.10
    assert seconds(OneRankCollective(size_bytes=1 << 30, in_place=True), H200) == 0


@on_every_gpu
def test_more_bytes_strides_and_pageable_memory_never_take_less(on: Gpu) -> None:
    sizes = [1 << power for power in range(0, 31, 3)]
    kinds: list[Callable[[int], Any]] = [
        lambda n: cat(n, 2),
        lambda n: cat(n, 2, contiguous=True),
        lambda n: HostCopy(size_bytes=n, to_gpu=True),
        lambda n: OneRankCollective(size_bytes=n, in_place=False),
    ]
    for make in kinds:
        times = [seconds(make(n), on) for n in sizes]
        assert times == sorted(times)
    for n in sizes:
        assert seconds(cat(n, 2), on) >= seconds(cat(n, 2, contiguous=True), on)
        pinned, pageable = (HostCopy(size_bytes=n, to_gpu=True, pinned=pinned) for pinned in (True, False))
        assert seconds(pageable, on) > seconds(pinned, on)

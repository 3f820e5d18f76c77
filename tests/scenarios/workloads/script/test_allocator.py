"""What torch's caching allocator reserves for the blocks of a script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.workloads.script.gpu.memory.allocator import BLOCK_BYTES, Allocator, is_expandable

MIB = 1 << 20
LIMIT_BYTES = 1 << 40


def allocator(**sizes_mib: float) -> Allocator:
    """Return an allocator of segments in which stream 0 has these blocks."""
    made = Allocator(LIMIT_BYTES, is_expandable=False)
    for key, size in sizes_mib.items():
        made.allocate(key, int(size * MIB), 0)
    return made


@pytest.mark.parametrize(
    ("size_bytes", "reserved"), [(512, 2), (MIB, 2), (MIB + 512, 20), (9 * MIB, 20), (11 * MIB, 12)]
)
def test_segments_are_larger_than_what_asks_for_them(size_bytes: int, reserved: int) -> None:
    made = Allocator(LIMIT_BYTES, is_expandable=False)
    made.allocate("a", size_bytes, 0)
    assert made.reserved_bytes == reserved * MIB


def test_no_stream_takes_what_another_has_given_back() -> None:
    made = allocator(a=100)
    made.free("a")
    made.allocate("b", 100 * MIB, 0)
    assert made.reserved_bytes == 100 * MIB
    made.free("b")
    made.allocate("c", 100 * MIB, 1)
    assert made.reserved_bytes == 200 * MIB


def test_free_neighbours_are_one_block_and_segments_are_not_neighbours() -> None:
    made = allocator(a=100)
    made.free("a")
    made.allocate("first", 40 * MIB, 0)
    made.allocate("second", 60 * MIB, 0)
    made.free("first")
    made.free("second")
    made.allocate("whole", 100 * MIB, 0)
    assert made.reserved_bytes == 100 * MIB
    made.free("whole")
    made.allocate("larger", 102 * MIB, 0)
    assert made.reserved_bytes == 202 * MIB


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    made = allocator(large=100, kept=30, small=40)
    made.free("large")
    made.free("small")
    made.allocate("a", 40 * MIB, 0)
    made.allocate("b", 100 * MIB, 0)
    assert made.reserved_bytes == 170 * MIB


def test_an_expandable_segment_grows_behind_what_is_free_at_its_end() -> None:
    made = Allocator(LIMIT_BYTES, is_expandable=True)
    made.allocate("first", 100 * MIB, 0)
    made.allocate("last", 100 * MIB, 0)
    made.free("last")
    made.allocate("larger", 140 * MIB, 0)
    assert made.reserved_bytes == 240 * MIB
    made.free("first")
    made.allocate("small", 60 * MIB, 0)
    made.free("larger")
    made.allocate("fits the hole", 40 * MIB, 0)
    assert made.reserved_bytes == 240 * MIB
    made.release()
    assert made.reserved_bytes == 100 * MIB
    made.allocate("again", 150 * MIB, 0)
    assert (made.reserved_bytes, made.highest_bytes) == (260 * MIB, 260 * MIB)


def test_settings_hold_for_what_is_reserved_later() -> None:
    made = allocator(a=9)
    made.take("garbage_collection_threshold:0.8")
    made.allocate("b", 30 * MIB, 0)
    made.take("expandable_segments:True")
    made.allocate("c", 30 * MIB, 0)
    assert made.reserved_bytes == (20 + 30 + 40) * MIB


def test_a_full_gpu_has_free_segments_given_back_first() -> None:
    made = Allocator(200 * MIB, is_expandable=False)
    made.allocate("a", 150 * MIB, 0)
    made.free("a")
    made.allocate("b", 160 * MIB, 0)
    assert (made.reserved_bytes, made.highest_bytes, made.retries) == (160 * MIB, 160 * MIB, 1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("", False), ("expandable_segments:True", True), ("max_split_size_mb:128, expandable_segments:True", True)],
)
def test_the_environment_asks_for_expandable_segments(settings: str, expected: bool) -> None:
    assert is_expandable(settings) is expected


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40 * MIB // BLOCK_BYTES), st.integers(0, 1)), max_size=60),
    st.booleans(),
)
def test_what_is_reserved_holds_all_blocks_and_all_can_be_given_back(
    asked: list[tuple[int, int, int]], grows: bool
) -> None:
    """An expandable segment keeps no page either when all of its blocks are free."""
    made, held = Allocator(LIMIT_BYTES, is_expandable=grows), dict[int, int]()
    for key, blocks, stream in asked:
        made.free(key)
        held[key] = blocks * BLOCK_BYTES
        made.allocate(key, held[key], stream)
        assert made.reserved_bytes >= sum(held.values())
    for key in held:
        made.free(key)
    made.release()
    assert made.reserved_bytes == 0
    assert made.highest_bytes >= made.peak_bytes

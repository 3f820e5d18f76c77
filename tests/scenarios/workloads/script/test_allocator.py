"""What torch's caching allocator reserves for the blocks of a script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.workloads.script.gpu.cuda.driver import Current, Driver
from scenarios.workloads.script.gpu.memory.allocator import Allocator, is_expandable
from scenarios.workloads.script.gpu.memory.blocks import BLOCK_BYTES
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory

MIB = 1 << 20
LIMIT_BYTES = 1 << 40


# What an allocator is asked in turn: (key, MiB) or (key, MiB, stream) takes a block, a key frees its own, None gives
# back what is unused, settings hold from then on; a number is how many MiB are reserved then.
Step = tuple[str, float] | tuple[str, float, int] | str | int | None


def play(made: Allocator, *steps: Step) -> Allocator:
    for step in steps:
        if isinstance(step, tuple):
            key, size, stream = (*step, 0)[:3]
            made.allocate(key, int(size * MIB), stream)
        elif isinstance(step, int):
            assert made.reserved_bytes == step * MIB
        elif step is None:
            made.release()
        elif ":" in step:
            made.take(step)
        else:
            made.free(step)
    return made


def segments(*steps: Step) -> Allocator:
    return play(Allocator(LIMIT_BYTES, is_expandable=False), *steps)


def of_pages(*steps: Step) -> Allocator:
    return play(Allocator(LIMIT_BYTES, is_expandable=True), *steps)


@pytest.mark.parametrize(
    ("size_bytes", "reserved"), [(512, 2), (MIB, 2), (MIB + 512, 20), (9 * MIB, 20), (11 * MIB, 12)]
)
def test_segments_are_larger_than_what_asks_for_them(size_bytes: int, reserved: int) -> None:
    segments(("a", size_bytes / MIB), reserved)


def test_no_stream_takes_what_another_has_given_back() -> None:
    segments(("a", 100), "a", ("b", 100), 100, "b", ("c", 100, 1), 200)


def test_free_neighbours_are_one_block_and_segments_are_not_neighbours() -> None:
    halves: tuple[Step, ...] = (("first", 40), ("second", 60), "first", "second")
    segments(("a", 100), "a", *halves, ("whole", 100), 100, "whole", ("larger", 102), 202)


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    segments(("large", 100), ("kept", 30), ("small", 40), "large", "small", ("a", 40), ("b", 100), 170)


def test_an_expandable_segment_grows_behind_what_is_free_at_its_end() -> None:
    made = of_pages(("first", 100), ("last", 100), "last", ("larger", 140), 240)
    play(made, "first", ("small", 60), "larger", ("fits the hole", 40), 240, None, 100, ("again", 150), 260)
    assert made.highest_bytes == 260 * MIB


def test_settings_hold_for_what_is_reserved_later() -> None:
    ignored, expandable = "garbage_collection_threshold:0.8", "expandable_segments:True"
    segments(("a", 9), ignored, ("b", 30), expandable, ("c", 30), 20 + 30 + 40)


def test_a_full_gpu_has_free_segments_given_back_first() -> None:
    made = play(Allocator(200 * MIB, is_expandable=False), ("a", 150), "a", ("b", 160), 160)
    assert (made.highest_bytes, made.retries) == (160 * MIB, 1)


def test_mapped_and_unmapped_pages_are_not_merged() -> None:
    """20 MiB are free ahead of what is not mapped."""
    of_pages(("x", 100), ("y", 100), ("z", 20), "y", None, "x", ("a", 80), 120, ("b", 60), 160)


def test_mapped_pages_are_used_before_unmapped_ones() -> None:
    made = of_pages(("h", 100), ("s", 20), ("m", 200), ("t", 20), "h", None, "m", ("a", 60), 240)
    # Neither 140 MiB that are free nor the hole of 100 MiB are enough.
    play(made, ("b", 150), ("c", 145), 240 + 160 + 140, ("d", 100), ("e", 100), 240 + 160 + 140 + 100)


def test_only_mapped_ranges_are_listed() -> None:
    made = of_pages(("x", 100), ("y", 100), ("z", 10), "y", None)
    assert [[block.size_bytes // MIB for block in blocks] for blocks in made.ranges()] == [[100], [10, 10]]


def test_expandable_blocks_are_given_only_while_settings_ask_for_them() -> None:
    on, off = (f"expandable_segments:{value}" for value in (True, False))
    of_pages(("a", 100), ("kept", 20), "a", off, ("b", 80), 200, on, ("c", 100), 200)


def test_frees_during_a_locked_call_are_not_lost() -> None:
    made = segments(("a", 100), ("b", 100))
    lock, late = made._lock, ["a", "b"]

    class Lock:
        acquire = lock.acquire

        def release(self) -> None:
            if late:  # another thread, which finds the lock taken
                made.free(late.pop())
            lock.release()

    made._lock = Lock()  # type: ignore[assignment]
    play(made, ("c", 100), ("d", 100), 300)
    assert made.free_bytes == 100 * MIB


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("max_split_size_mb:128, expandable_segments:True", ["max_split_size_mb"]),
        ("roundup_power2_divisions:[256:1,512:2],backend:cudaMallocAsync", ["roundup_power2_divisions", "backend"]),
        ("garbage_collection_threshold:0.8,backend:native", ["garbage_collection_threshold"]),
    ],
)
def test_settings_that_change_nothing_here_are_named(settings: str, named: list[str]) -> None:
    notes: list[str] = []
    Allocator(LIMIT_BYTES, say=notes.append).take(settings)
    assert [note.partition(" ")[0] for note in notes] == named


def test_the_environment_is_asked_once_when_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    made = Allocator(LIMIT_BYTES, say=notes.append)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    for key in range(3):
        made.allocate(key, 30 * MIB, 0)
    assert [note.partition(" ")[0] for note in notes] == ["max_split_size_mb", "PYTORCH_NO_CUDA_MEMORY_CACHING"]
    assert made.reserved_bytes == 100 * MIB


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
def test_reserved_memory_holds_all_blocks_and_can_be_released(asked: list[tuple[int, int, int]], grows: bool) -> None:
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


def test_a_librarys_memory_is_of_the_stream_that_it_names() -> None:
    """`torch.cuda.caching_allocator_alloc(size, stream=...)`: another stream cannot use the block once it is free."""
    memory = DeviceMemory(LIMIT_BYTES)
    Driver(Current(1), lambda _: memory, lambda: None)._allocate(MIB, 7)
    assert [each["stream"] for each in memory.segments(0)] == [7]

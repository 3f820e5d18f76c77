"""What is counted of a simulated GPU's memory: storages, what is needed longer than its storage, and workspaces."""

from __future__ import annotations

import pytest
import torch

from scenarios.workloads.script.gpu.memory.memory import DeviceMemory, workspace_bytes

KIB = 1024


def test_a_storage_counts_until_what_is_made_of_it_anew_is_gone() -> None:
    memory = DeviceMemory(1 << 30)
    memory.hold("logits", 4 * KIB)
    memory.hold("logarithms", 0)
    memory.hold("another", 0)
    memory.keep("logits", ["logarithms", "another"])
    memory.drop("logits")
    memory.hold("logits", KIB)  # a new storage at the place of the old one
    assert memory.now_bytes == 5 * KIB
    memory.drop("logarithms")
    assert memory.now_bytes == 5 * KIB
    memory.drop("another")
    memory.drop("logits")
    assert memory.now_bytes == 0


def test_users_that_are_gone_keep_nothing() -> None:
    memory = DeviceMemory(1 << 30)
    memory.hold("logits", 4 * KIB)
    memory.hold("logarithms", 0)
    memory.keep("logits", ["logarithms"])
    memory.drop("logarithms")
    memory.drop("logits")
    assert memory.now_bytes == 0


@pytest.mark.parametrize(("capability", "size_bytes"), [((9, 0), 32 << 20), ((10, 0), 32 << 20), ((8, 0), 8_519_680)])
def test_threads_and_streams_have_separate_workspaces(capability: tuple[int, int], size_bytes: int) -> None:
    """cuBLASLt, which adds biases, has one of 1 MiB."""
    assert workspace_bytes(capability) == size_bytes
    memory = DeviceMemory(1 << 30, size_bytes)
    for user in ["forward", "backward", "forward"]:
        memory.hold_workspace(user, has_bias=False)
    assert memory.now_bytes == 2 * size_bytes
    memory.hold_workspace("forward", has_bias=True)
    memory.hold_workspace("forward", has_bias=True)
    assert memory.now_bytes == memory.peak_bytes == 2 * size_bytes + (1 << 20)


def test_fragmented_free_memory_cannot_be_allocated() -> None:
    """A segment of which a block is held cannot be given back."""
    memory = DeviceMemory(80 << 30)
    memory.hold("large", 40 << 30)
    memory.drop("large")
    memory.hold("small", 10 << 30)
    with pytest.raises(
        torch.OutOfMemoryError, match=r"room for 45 GiB.* 10 GiB of 80 GiB, and 30 GiB more .*expandable"
    ):
        memory.hold("another", 45 << 30)
    assert memory.free_and_total() == (40 << 30, 80 << 30)
    assert memory.statistics()["num_ooms"] == 1
    assert memory.statistics()["allocated_bytes"]["all"]["allocated"] == 50 << 30
    assert (memory.now_bytes, memory.holds("another")) == (10 << 30, False)
    memory.drop("small")
    memory.hold("another", 45 << 30)
    assert memory.free_and_total() == (35 << 30, 80 << 30)


def test_segments_and_what_is_free_in_them_are_counted_by_pool() -> None:
    memory = DeviceMemory(1 << 30)
    for key in range(100):
        memory.hold(key, 512)
    memory.hold("large", 12 << 20)
    memory.drop("large")
    memory.empty_cache()
    found = memory.statistics()
    assert found["segment"]["all"] == {"current": 1, "peak": 2, "allocated": 2, "freed": 1}
    assert (found["segment"]["small_pool"]["current"], found["segment"]["large_pool"]["current"]) == (1, 0)
    assert found["reserved_bytes"]["all"]["freed"] == 12 << 20
    assert found["inactive_split_bytes"]["small_pool"]["current"] == (2 << 20) - 100 * 512
    assert found["inactive_split"]["all"]["current"] == 1
    assert (found["num_device_alloc"], found["num_device_free"]) == (2, 1)
    memory.reset_accumulated()
    assert memory.statistics()["segment"]["all"] == {"current": 1, "peak": 2, "allocated": 0, "freed": 0}


def test_a_workspace_without_room_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="expected room for 32"):
        DeviceMemory(1 << 20, 32 << 20).hold_workspace("forward", has_bias=False)

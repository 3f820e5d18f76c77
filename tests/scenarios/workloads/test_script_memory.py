"""What is counted of a simulated GPU's memory: storages, what is needed longer than its storage, and workspaces."""

from __future__ import annotations

import pytest
import torch

from scenarios.workloads.script.gpu.memory.memory import Memory, workspace_bytes

KIB = 1024


def test_a_storage_counts_until_what_is_made_of_it_anew_is_gone() -> None:
    memory = Memory(1 << 30)
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
    memory = Memory(1 << 30)
    memory.hold("logits", 4 * KIB)
    memory.hold("logarithms", 0)
    memory.keep("logits", ["logarithms"])
    memory.drop("logarithms")
    memory.drop("logits")
    assert memory.now_bytes == 0


@pytest.mark.parametrize(("capability", "size_bytes"), [((9, 0), 32 << 20), ((10, 0), 32 << 20), ((8, 0), 8_519_680)])
def test_each_thread_and_stream_has_a_workspace(capability: tuple[int, int], size_bytes: int) -> None:
    """cuBLASLt, which adds biases, has one of 1 MiB."""
    assert workspace_bytes(capability) == size_bytes
    memory = Memory(1 << 30, size_bytes)
    for user in ["forward", "backward", "forward"]:
        memory.hold_workspace(user, has_bias=False)
    assert memory.now_bytes == 2 * size_bytes
    memory.hold_workspace("forward", has_bias=True)
    memory.hold_workspace("forward", has_bias=True)
    assert memory.now_bytes == memory.peak_bytes == 2 * size_bytes + (1 << 20)


def test_a_workspace_without_room_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="expected room for 32"):
        Memory(1 << 20, 32 << 20).hold_workspace("forward", has_bias=False)

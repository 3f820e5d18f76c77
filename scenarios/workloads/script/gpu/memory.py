"""What a script's tensors take of the memory of a GPU that is not there."""

from __future__ import annotations

import torch

from scenarios.config.units import format_bytes

# Of which CUDA's caching allocator makes its blocks.
_BLOCK_BYTES = 512


class Memory:
    """Bytes of the storages that there are, by what stands for them; and the most that there were.

    Raises:
        torch.OutOfMemoryError: there is no room for one.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.now_bytes = self.peak_bytes = self.highest_bytes = 0  # the highest no script resets
        self._sizes: dict[int, int] = {}

    def hold(self, key: int, size_bytes: int) -> None:
        """A storage is there, or has another size than before."""
        size_bytes = -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        wanted_bytes = self.now_bytes - self._sizes.get(key, 0) + size_bytes
        if wanted_bytes > self.total_bytes:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory: expected room for {format_bytes(size_bytes)}; the script's tensors take"
                f" {format_bytes(self.now_bytes)} of {format_bytes(self.total_bytes)}"
            )
        self._sizes[key], self.now_bytes = size_bytes, wanted_bytes
        self.peak_bytes = max(self.peak_bytes, wanted_bytes)
        self.highest_bytes = max(self.highest_bytes, wanted_bytes)

    def drop(self, key: int) -> None:
        """It is gone."""
        self.now_bytes -= self._sizes.pop(key, 0)

    def holds(self, key: int) -> bool:
        """Whether it is there."""
        return key in self._sizes

    def reset_peak(self, device: object = None) -> None:
        """As `torch.cuda.reset_peak_memory_stats`."""
        self.peak_bytes = self.now_bytes

    def statistics(self, device: object = None) -> dict[str, int]:
        """Those of `torch.cuda.memory_stats` that are known."""
        found = {"current": self.now_bytes, "peak": self.peak_bytes}
        names = ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes")
        return {f"{name}.all.{when}": size for name in names for when, size in found.items()} | {
            "num_ooms": 0,
            "num_alloc_retries": 0,
        }

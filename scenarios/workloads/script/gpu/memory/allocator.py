"""A model of torch's caching allocator: the GPU memory that it reserves for a script's blocks.

Freed blocks are kept for later requests of the same stream and pool (blocks up to 1 MiB have their own pool); other
streams cannot use them. A request takes the smallest free block that is large enough and leaves its rest free; adjacent
free blocks merge. If no block is large enough, more memory is reserved: a separate segment, or with
`expandable_segments:True` (PYTORCH_ALLOC_CONF, or its older name) pages at the lowest addresses with enough room, next
to free memory there. If the GPU has no more memory, unused segments and pages are released once. Blocks that other
streams still use (`record_stream`) are assumed to be free at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from scenarios.workloads.script.gpu.memory.blocks import (
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    Block,
    BlockPool,
    Gauge,
    cut,
    put_free,
    round_up,
)

_SMALL_BYTES = 1 << 20  # the largest small block (torch's c10/core/CachingDeviceAllocator.h, 2.11)
# The address range of an expandable segment, and the distance between others: more than a GPU has, in whole pages.
_SEGMENT_STRIDE = LARGE_SEGMENT_BYTES << 20
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_GAUGES = ("reserved_bytes", "segment", "inactive_split_bytes", "inactive_split")
_UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"
_IGNORED = ("max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold")


def is_expandable(settings: str | None = None) -> bool:
    """Return whether the allocator's settings, by default the environment's, enable expandable segments."""
    settings = _of_environment() if settings is None else settings
    pairs = (each.partition(":") for each in settings.replace(" ", "").split(","))
    return {name: value for name, _, value in pairs}.get("expandable_segments", "False") == "True"


def ignored_settings(settings: str | None = None) -> list[str]:
    """Return the settings, by default the environment's, that change torch's reservations but have no effect here."""
    given = (_of_environment() if settings is None else settings).replace(" ", "")
    found = [name for name in _IGNORED if name in given]
    if "backend:" in given and "backend:native" not in given:
        found.append("backend")
    return [*found, _UNCACHED] if settings is None and _UNCACHED in os.environ else found


def _of_environment() -> str:
    return next((os.environ[name] for name in _SETTINGS if name in os.environ), "")


class Allocator:
    """The blocks of a GPU's memory, by key.

    Unused memory is released before more than `limit_bytes` would be reserved. `say` is called about settings that
    have no effect here.

    Attributes:
        is_expandable: whether new blocks are in expandable segments; None: as the environment says.
        gauges: reserved memory, by torch's names of pools and of statistics.
        highest_bytes: the maximum of reserved memory ever.
        allocations, releases, retries: how often memory was requested from the GPU, released to it, and requested again
            after a release.
    """

    def __init__(
        self, limit_bytes: int, *, is_expandable: bool | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.limit_bytes, self.is_expandable, self._say = limit_bytes, is_expandable, say
        self.gauges = {pool: {name: Gauge() for name in _GAUGES} for pool in ("all", "large_pool", "small_pool")}
        self.highest_bytes = self.allocations = self.releases = self.retries = 0
        self._pools: dict[tuple[int, bool], BlockPool] = {}
        self._blocks: dict[Hashable, Block] = {}
        self._refused: set[Hashable] = set()
        self._end = 0
        self._lock, self._waiting = threading.Lock(), deque[tuple[Callable[..., None], tuple[Any, ...]]]()

    @property
    def reserved_bytes(self) -> int:
        """The memory reserved now, in bytes."""
        return self.gauges["all"]["reserved_bytes"].current

    @property
    def peak_bytes(self) -> int:
        """The maximum of reserved memory since peaks were reset, in bytes."""
        return self.gauges["all"]["reserved_bytes"].peak

    @property
    def free_bytes(self) -> int:
        """The reserved memory in free blocks, in bytes."""
        return sum(size for pool in self._pools.values() for size, _ in pool.sizes)

    def allocate(self, key: Hashable, size_bytes: int, stream: int) -> bool:
        """Allocate a block for `key`; return whether there is room.

        `size_bytes` is a multiple of BLOCK_BYTES; 0 bytes need no block.
        """
        if size_bytes:
            self._do(self._allocate, key, size_bytes, stream)
        return key not in self._refused

    def free(self, key: Hashable) -> None:
        """Free the block of `key`, if it has one."""
        self._do(self._free, key)

    def move(self, key: Hashable, to: Hashable) -> None:
        """Rename the block of `key`."""
        self._do(self._move, key, to)

    def release(self) -> None:
        """Release unused segments, and unused pages of expandable segments, to the GPU."""
        self._do(self._release)

    def take(self, settings: str) -> None:
        """Apply settings to later allocations, as `torch.cuda.memory._set_allocator_settings` does."""
        self._note(settings)
        if "expandable_segments" in settings:
            self.is_expandable = is_expandable(settings)

    def reset(self, *, is_peak: bool) -> None:
        """Reset the peaks to current values, or (not `is_peak`) the accumulated counts to zero."""
        for gauges in self.gauges.values():
            for gauge in gauges.values():
                if is_peak:
                    gauge.peak = gauge.current
                else:
                    gauge.allocated = gauge.freed = 0

    def ranges(self) -> list[list[Block]]:
        """Return the blocks of each contiguous mapped range of addresses; a segment that cannot grow is one range."""
        with self._lock:
            free = (block for pool in self._pools.values() for block in pool.free.values())
            found: list[list[Block]] = []
            for block in sorted((*self._blocks.values(), *free), key=lambda each: each.start):
                if block.before is None or not block.before.is_mapped:
                    found.append([])
                found[-1].append(block)
        self._work()
        return found

    def _do(self, method: Callable[..., None], *args: Any) -> None:
        """Queue a change of the blocks, and run queued changes unless one is running.

        Python may free a storage in the middle of any line, and so in the middle of a change.
        """
        self._waiting.append((method, args))
        self._work()

    def _work(self) -> None:
        """Run queued changes, also those queued between the last check and the release of the lock."""
        # Not blocking: the lock may be held further up this thread's own stack, by the line that freed a storage.
        while self._waiting and self._lock.acquire(blocking=False):
            try:
                while self._waiting:
                    method, args = self._waiting.popleft()
                    method(*args)
            finally:
                self._lock.release()

    def _allocate(self, key: Hashable, size_bytes: int, stream: int) -> None:
        if self.is_expandable is None:
            self._note(None)
            self.is_expandable = is_expandable()
        pool = self._pool(stream, is_small=size_bytes <= _SMALL_BYTES)
        block = pool.fitting(size_bytes, is_expandable=self.is_expandable)
        if block is None:
            block = self._make_block(pool, size_bytes)
            # As torch does: before it gives up it releases what is unused, and asks the GPU once more.
            if block is None:
                self.retries += 1
                self._release()
                block = self._make_block(pool, size_bytes)
            if block is None:
                self._refused.add(key)
                return
        pool.take(block)
        self._split(block, size_bytes)
        self._blocks[key] = block

    def _pool(self, stream: int, *, is_small: bool) -> BlockPool:
        pool = self._pools.get((stream, is_small))
        if pool is None:
            gauges = self.gauges["all"], self.gauges["small_pool" if is_small else "large_pool"]
            pool = self._pools[stream, is_small] = BlockPool(stream, is_small, gauges)
        return pool

    def _note(self, settings: str | None) -> None:
        for name in ignored_settings(settings):
            self._say(f"{name} of torch's allocator changes nothing here: what is reserved is predicted without it")

    def _free(self, key: Hashable) -> None:
        self._refused.discard(key)
        block = self._blocks.pop(key, None)
        if block is not None:
            put_free(block)

    def _move(self, key: Hashable, to: Hashable) -> None:
        if key in self._blocks:
            self._blocks[to] = self._blocks.pop(key)

    def _release(self) -> None:
        for pool in self._pools.values():
            # A copy, as blocks leave the pool meanwhile.
            for block in list(pool.free.values()):
                if block.is_expandable:
                    self._unmap(block)
                elif block.before is None and block.behind is None:  # cudaFree takes whole segments only
                    self._give_back(pool, pool.take(block).size_bytes)
                    pool.count(segment=-1)

    def _unmap(self, block: Block) -> None:
        """Release the whole pages within a free block."""
        pool, behind = block.pool, block.start + block.size_bytes
        start, end = round_up(block.start, pool.page_bytes), behind // pool.page_bytes * pool.page_bytes
        if start >= end:
            return
        pool.take(block)
        if end < behind:
            pool.put(cut(block, end - block.start))
        if start > block.start:
            first, block = block, cut(block, start - block.start)
            pool.put(first)
        block.is_mapped = False
        self._give_back(pool, block.size_bytes)
        put_free(block)

    def _give_back(self, pool: BlockPool, size_bytes: int) -> None:
        self.releases += 1
        pool.count(reserved_bytes=-size_bytes)

    def _make_block(self, pool: BlockPool, size_bytes: int) -> Block | None:
        """Return a large enough free block of newly reserved memory; None if the GPU has no more."""
        if self.is_expandable:
            return self._grow(pool, size_bytes)
        segment_bytes = pool.segment_bytes(size_bytes)
        if not self._reserve(pool, segment_bytes):
            return None
        pool.count(segment=1)
        pool.put(block := Block(pool, self._place(), segment_bytes))
        return block

    def _grow(self, pool: BlockPool, size_bytes: int) -> Block | None:
        """Return a free block of an expandable segment after reserving pages; keep the pages if they are too few."""
        block: Block | None = self._lowest(pool, size_bytes)
        if block is not None and not block.is_mapped:
            block = self._map(block, min(size_bytes, block.size_bytes))
        while block is not None and block.size_bytes < size_bytes:
            hole = block.behind
            assert hole is not None, "a block was chosen that has no room to grow"
            block = self._map(hole, min(size_bytes - block.size_bytes, hole.size_bytes))
        return block

    def _lowest(self, pool: BlockPool, size_bytes: int) -> Block:
        """Return the first free block at the lowest address with enough room, counting unmapped room."""
        for start in sorted(pool.holes):
            block = pool.holes[start]
            if block.before is not None and block.before.is_free:
                block = block.before
            if block.has_room(size_bytes):
                return block
        pool.put(hole := Block(pool, self._place(), _SEGMENT_STRIDE, is_expandable=True, is_mapped=False))
        return hole

    def _map(self, hole: Block, size_bytes: int) -> Block | None:
        """Reserve the first pages of a hole; return the free block that contains them, None if the GPU is full."""
        pool, pages_bytes = hole.pool, round_up(size_bytes, hole.pool.page_bytes)
        if not self._reserve(pool, pages_bytes):
            return None
        pool.take(hole)
        if pages_bytes < hole.size_bytes:
            pool.put(cut(hole, pages_bytes))
        hole.is_mapped = True
        return put_free(hole)

    def _place(self) -> int:
        """Return the address of a new segment, which is adjacent to no other."""
        self._end += _SEGMENT_STRIDE
        return self._end

    def _reserve(self, pool: BlockPool, size_bytes: int) -> bool:
        """Reserve `size_bytes` if the GPU has as much; return whether it has."""
        if self.reserved_bytes + size_bytes > self.limit_bytes:
            return False
        self.allocations += 1
        pool.count(reserved_bytes=size_bytes)
        self.highest_bytes = max(self.highest_bytes, self.reserved_bytes)
        return True

    def _split(self, block: Block, size_bytes: int) -> None:
        """Shrink a block to a size, and free the rest if torch would."""
        rest_bytes = block.size_bytes - size_bytes
        # torch's `should_split`: a block of a large segment is cut only if more than a small block is left.
        if rest_bytes >= BLOCK_BYTES and (block.pool.is_small or self.is_expandable or rest_bytes > _SMALL_BYTES):
            block.pool.put(cut(block, size_bytes))

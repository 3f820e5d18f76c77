"""What torch's caching allocator reserves of a GPU for the blocks that a script holds.

Blocks are kept when they are freed, for later ones of the same stream and of the same pool (small blocks, up to 1 MiB,
have their own): what one stream has given back no other takes. A request takes the smallest free block that is large
enough and leaves the rest of it free; neighbours that are free are one. Where none is large enough more is reserved: a
segment of its own, or with `expandable_segments:True` (PYTORCH_ALLOC_CONF, or by its older name) pages behind those
that the stream's pool has. Blocks that others' streams still use (`record_stream`) are taken to be free at once.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

# torch's c10/core/CachingDeviceAllocator.h and c10/cuda/CUDACachingAllocator.cpp (2.11): the unit of blocks, the
# largest small one, segments of small blocks and of those below 10 MiB, the unit of larger ones.
BLOCK_BYTES = 512
_SMALL_BYTES = 1 << 20
_SMALL_SEGMENT_BYTES, _LARGE_SEGMENT_BYTES, _UNIT_BYTES = 2 << 20, 20 << 20, 2 << 20
_OWN_SEGMENT_BYTES = 10 << 20
_SEGMENT_STRIDE = (
    _LARGE_SEGMENT_BYTES << 20
)  # between the addresses of segments here: more than a GPU has, in whole pages
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def is_expandable(settings: str | None = None) -> bool:
    """Return whether settings of the allocator, by default those of the environment, ask for expandable segments."""
    if settings is None:
        settings = next((os.environ[name] for name in _SETTINGS if name in os.environ), "")
    pairs = (each.partition(":") for each in settings.replace(" ", "").split(","))
    return {name: value for name, _, value in pairs}.get("expandable_segments", "False") == "True"


@dataclass(slots=True, eq=False)
class Block:
    """Bytes of a segment from `start` on, beside others of it; the GPU has taken `unmapped_bytes` of them back."""

    pool: Pool
    start: int
    size_bytes: int
    before: Block | None = None
    behind: Block | None = None
    is_free: bool = False
    is_expandable: bool = False
    unmapped_bytes: int = 0


@dataclass(slots=True, eq=False)
class Pool:
    """Free blocks of one stream, small or large ones, and the last block of its expandable segment."""

    stream: int
    is_small: bool
    sizes: list[tuple[int, int]] = field(default_factory=list)  # with starts, sorted
    free: dict[int, Block] = field(default_factory=dict)
    last: Block | None = None

    @property
    def page_bytes(self) -> int:
        """The unit in which an expandable segment grows."""
        return _SMALL_SEGMENT_BYTES if self.is_small else _LARGE_SEGMENT_BYTES

    def put(self, block: Block) -> None:
        """Add a block to the free ones."""
        block.is_free = True
        insort(self.sizes, (block.size_bytes, block.start))
        self.free[block.start] = block

    def take(self, block: Block) -> Block:
        """Take a block from the free ones."""
        block.is_free = False
        del self.sizes[bisect_left(self.sizes, (block.size_bytes, block.start))], self.free[block.start]
        return block

    def fitting(self, size_bytes: int) -> Block | None:
        """Return the smallest free block that is large enough; one that can grow counts as larger than all others."""
        at = bisect_left(self.sizes, (size_bytes, 0))
        found = [self.free[start] for _, start in self.sizes[at : at + 2]]
        return found[-1] if found and found[0] is self.last else found[0] if found else None

    def segment_bytes(self, size_bytes: int) -> int:
        """Return the size of a segment of its own for a block."""
        if self.is_small or size_bytes < _OWN_SEGMENT_BYTES:
            return self.page_bytes
        return _rounded(size_bytes, _UNIT_BYTES)


class Allocator:
    """The blocks of a GPU's memory, by what they stand for; what is reserved beyond `limit_bytes` has the allocator
    give back first what no block is in.

    Attributes:
        is_expandable: whether what is reserved from now on is of expandable segments; None: as the environment says.
        reserved_bytes, peak_bytes, highest_bytes: what is reserved now, at most since `reset_peak`, and at most.
        segments, retries: how often memory was asked of the GPU, and how often given back for that.
    """

    def __init__(self, limit_bytes: int, *, is_expandable: bool | None = None) -> None:
        self.limit_bytes, self.is_expandable = limit_bytes, is_expandable
        self.reserved_bytes = self.peak_bytes = self.highest_bytes = self.segments = self.retries = 0
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._blocks: dict[Hashable, Block] = {}
        self._end = 0
        self._lock, self._waiting = threading.Lock(), deque[tuple[Callable[..., None], tuple[Any, ...]]]()

    def allocate(self, key: Hashable, size_bytes: int, stream: int) -> None:
        """Give a block of a multiple of BLOCK_BYTES to what `key` stands for; nothing needs none."""
        if size_bytes:
            self._do(self._allocate, key, size_bytes, stream)

    def free(self, key: Hashable) -> None:
        """Take back the block of what `key` stands for, if it has one."""
        self._do(self._free, key)

    def move(self, key: Hashable, to: Hashable) -> None:
        """Have the block of what `key` stands for stand for something else."""
        self._do(self._move, key, to)

    def release(self) -> None:
        """Give back the segments, and the pages of expandable ones, that no block is in."""
        self._do(self._release)

    def take(self, settings: str) -> None:
        """Take settings as `torch.cuda.memory._set_allocator_settings` does; they hold for what is reserved later."""
        if "expandable_segments" in settings:
            self.is_expandable = is_expandable(settings)

    def reset_peak(self) -> None:
        """Let the peak be what is reserved now."""
        self.peak_bytes = self.reserved_bytes

    def chains(self) -> Iterator[list[Block]]:
        """Yield the blocks of each segment, in order."""
        free = (block for pool in self._pools.values() for block in pool.free.values())
        for block in sorted((*self._blocks.values(), *free), key=lambda each: each.start):
            if block.before is None:
                chain = [block]
                while (behind := chain[-1].behind) is not None:
                    chain.append(behind)
                yield chain

    def _do(self, method: Callable[..., None], *args: Any) -> None:
        """Do this when what is under way is over: Python may free a storage in the midst of any line."""
        self._waiting.append((method, args))
        if self._lock.acquire(blocking=False):
            try:
                while self._waiting:
                    method, args = self._waiting.popleft()
                    method(*args)
            finally:
                self._lock.release()

    def _allocate(self, key: Hashable, size_bytes: int, stream: int) -> None:
        is_small = size_bytes <= _SMALL_BYTES
        pool = self._pools.get((stream, is_small))
        if pool is None:
            pool = self._pools[stream, is_small] = Pool(stream, is_small)
        block = pool.fitting(size_bytes)
        block = self._made(pool, size_bytes) if block is None else pool.take(block)
        self._split(block, size_bytes)
        if block.unmapped_bytes:
            self._reserve(block.unmapped_bytes)
            block.unmapped_bytes = 0
        self._blocks[key] = block

    def _free(self, key: Hashable) -> None:
        block = self._blocks.pop(key, None)
        if block is None:
            return
        if block.before is not None and block.before.is_free:
            block = _joined(block.pool.take(block.before), block)
        if block.behind is not None and block.behind.is_free:
            block = _joined(block, block.pool.take(block.behind))
        block.pool.put(block)

    def _move(self, key: Hashable, to: Hashable) -> None:
        if key in self._blocks:
            self._blocks[to] = self._blocks.pop(key)

    def _release(self) -> None:
        for pool in self._pools.values():
            for block in list(pool.free.values()):
                if block.is_expandable:
                    start, end = _rounded(block.start, pool.page_bytes), block.start + block.size_bytes
                    unmapped = max(end // pool.page_bytes * pool.page_bytes - start, block.unmapped_bytes)
                    self.reserved_bytes -= unmapped - block.unmapped_bytes
                    block.unmapped_bytes = unmapped
                elif block.before is None and block.behind is None:
                    self.reserved_bytes -= pool.take(block).size_bytes

    def _made(self, pool: Pool, size_bytes: int) -> Block:
        """Return a block of memory that has not been reserved before, which is not smaller."""
        if self.is_expandable is None:
            self.is_expandable = is_expandable()
        if not self.is_expandable:
            block = Block(pool, self._place(), pool.segment_bytes(size_bytes))
            self._reserve(block.size_bytes)
            return block
        last = pool.last
        if last is None or not last.is_free:
            start = self._place() if last is None else last.start + last.size_bytes
            block = pool.last = Block(pool, start, 0, before=last, is_expandable=True)
            if last is not None:
                last.behind = block
        else:
            block = pool.take(last)
        more_bytes = _rounded(size_bytes - block.size_bytes, pool.page_bytes)
        self._reserve(more_bytes)
        block.size_bytes += more_bytes
        return block

    def _place(self) -> int:
        """Return where a new segment begins, which lies beside no other."""
        self._end += _SEGMENT_STRIDE
        return self._end

    def _reserve(self, size_bytes: int) -> None:
        self.segments += 1
        if self.reserved_bytes + size_bytes > self.limit_bytes:
            self.retries += 1
            self._release()
        self.reserved_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.reserved_bytes)
        self.highest_bytes = max(self.highest_bytes, self.reserved_bytes)

    def _split(self, block: Block, size_bytes: int) -> None:
        """Have a block be of this size, and what is left of it a free one, if that is worth it."""
        pool, rest_bytes = block.pool, block.size_bytes - size_bytes
        is_fine = pool.is_small or block.is_expandable
        if rest_bytes < BLOCK_BYTES or not (is_fine or rest_bytes > _SMALL_BYTES):
            return
        rest = Block(pool, block.start + size_bytes, rest_bytes, block, block.behind, is_expandable=block.is_expandable)
        mapped_bytes = min(block.unmapped_bytes, _rounded(size_bytes, pool.page_bytes))
        block.unmapped_bytes, rest.unmapped_bytes = mapped_bytes, block.unmapped_bytes - mapped_bytes
        if block.behind is not None:
            block.behind.before = rest
        block.behind, block.size_bytes = rest, size_bytes
        if block is pool.last:
            pool.last = rest
        pool.put(rest)


def _joined(first: Block, second: Block) -> Block:
    """Return the block that two neighbours are together, neither of which is among the free ones."""
    first.size_bytes += second.size_bytes
    first.unmapped_bytes += second.unmapped_bytes
    first.behind = second.behind
    if second.behind is not None:
        second.behind.before = first
    if second is second.pool.last:
        second.pool.last = first
    return first


def _rounded(size_bytes: int, unit_bytes: int) -> int:
    return -(-size_bytes // unit_bytes) * unit_bytes

"""Blocks of a GPU's memory as torch's caching allocator splits and merges them, with its statistics."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

# From torch's c10/core/CachingDeviceAllocator.h and c10/cuda/CUDACachingAllocator.cpp (2.11): the unit of blocks, the
# segments of small blocks and of blocks below 10 MiB, the unit of larger segments.
BLOCK_BYTES = 512
_SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES, _UNIT_BYTES = 2 << 20, 20 << 20, 2 << 20
_OWN_SEGMENT_BYTES = 10 << 20


@dataclass(slots=True)
class Gauge:
    """A quantity in torch's statistics: its current value, its peak, and the totals added and subtracted."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        """Add an amount, which may be negative."""
        self.current += amount
        if amount > 0:
            self.allocated += amount
            self.peak = max(self.peak, self.current)
        else:
            self.freed -= amount


@dataclass(slots=True, eq=False)
class Block:
    """A range of bytes in a segment, from `start` on, with its neighbours; the GPU provides only mapped blocks."""

    pool: BlockPool
    start: int
    size_bytes: int
    before: Block | None = None
    behind: Block | None = None
    is_free: bool = False
    is_expandable: bool = False
    is_mapped: bool = True

    @property
    def room_bytes(self) -> int:
        """The size to which it can grow, in bytes: with an unmapped neighbour behind it."""
        hole = self.behind
        return self.size_bytes + (0 if hole is None or hole.is_mapped else hole.size_bytes)

    def joins(self, neighbour: Block) -> bool:
        """Return whether a neighbour is free and both are mapped or neither is."""
        return neighbour.is_free and neighbour.is_mapped == self.is_mapped

    def has_room(self, size_bytes: int) -> bool:
        """Return whether this block, if free, and the free blocks right behind it have `size_bytes` together."""
        block: Block | None = self
        while size_bytes > 0 and block is not None and block.is_free:
            size_bytes -= block.size_bytes
            block = block.behind
        return size_bytes <= 0


@dataclass(slots=True, eq=False)
class BlockPool:
    """The free blocks of one stream, small or large, and separately the unmapped ones, by start.

    `gauges` are statistics by their names in `torch.cuda.memory_stats`, those of all pools and of this one.
    """

    stream: int
    is_small: bool
    gauges: tuple[dict[str, Gauge], ...]
    sizes: list[tuple[int, int]] = field(default_factory=list)  # (size, start) of free blocks, sorted
    free: dict[int, Block] = field(default_factory=dict)
    holes: dict[int, Block] = field(default_factory=dict)

    @property
    def page_bytes(self) -> int:
        """The unit in which an expandable segment grows, in bytes."""
        return _SMALL_SEGMENT_BYTES if self.is_small else LARGE_SEGMENT_BYTES

    def put(self, block: Block) -> None:
        """Add a block to the free ones."""
        block.is_free = True
        if not block.is_mapped:
            self.holes[block.start] = block
            return
        # By size, then address, as torch's pools are sorted: the order decides which of equal blocks is taken.
        insort(self.sizes, (block.size_bytes, block.start))
        self.free[block.start] = block
        self._count_free(block, 1)

    def take(self, block: Block) -> Block:
        """Remove a block from the free ones, and return it."""
        block.is_free = False
        if not block.is_mapped:
            return self.holes.pop(block.start)
        del self.sizes[bisect_left(self.sizes, (block.size_bytes, block.start))], self.free[block.start]
        self._count_free(block, -1)
        return block

    def count(self, **amounts: int) -> None:
        """Add amounts, which may be negative, to the gauges of these names."""
        for gauges in self.gauges:
            for name, amount in amounts.items():
                gauges[name].add(amount)

    def _count_free(self, block: Block, number: int) -> None:
        """Count a free block if it shares its segment; pages of expandable segments can be released separately."""
        if not block.is_expandable and (block.before is not None or block.behind is not None):
            self.count(inactive_split=number, inactive_split_bytes=number * block.size_bytes)

    def fitting(self, size_bytes: int, *, is_expandable: bool) -> Block | None:
        """Return the large enough free block with the least room to grow, None without one.

        `is_expandable`: blocks of expandable segments are allowed.
        """
        found: Block | None = None
        for at in range(bisect_left(self.sizes, (size_bytes, 0)), len(self.sizes)):
            block = self.free[self.sizes[at][1]]
            if not is_expandable and block.is_expandable:
                continue
            if found is not None and block.room_bytes >= found.room_bytes:
                break
            found = block
            if not found.is_expandable:
                break
        return found

    def segment_bytes(self, size_bytes: int) -> int:
        """Return the size of a new segment for a block of `size_bytes`."""
        if self.is_small or size_bytes < _OWN_SEGMENT_BYTES:
            return self.page_bytes
        return round_up(size_bytes, _UNIT_BYTES)


def put_free(block: Block) -> Block:
    """Free a block, merged with free neighbours; return the merged block."""
    if block.before is not None and block.joins(block.before):
        block = _merge(block.pool.take(block.before), block)
    if block.behind is not None and block.joins(block.behind):
        block = _merge(block, block.pool.take(block.behind))
    block.pool.put(block)
    return block


def cut(block: Block, size_bytes: int) -> Block:
    """Shrink a block that is not among the free ones; return the rest, a new block that is not among them either."""
    start, rest_bytes = block.start + size_bytes, block.size_bytes - size_bytes
    rest = Block(block.pool, start, rest_bytes, block, block.behind, False, block.is_expandable, block.is_mapped)
    if block.behind is not None:
        block.behind.before = rest
    block.behind, block.size_bytes = rest, size_bytes
    return rest


def _merge(first: Block, second: Block) -> Block:
    """Merge two neighbours, neither of which is among the free ones."""
    first.size_bytes += second.size_bytes
    first.behind = second.behind
    if second.behind is not None:
        second.behind.before = first
    return first


def round_up(size_bytes: int, unit_bytes: int) -> int:
    """Round up to a multiple of `unit_bytes`."""
    return -(-size_bytes // unit_bytes) * unit_bytes

"""Cuts a buffer for gloo's rings: p chunks of equally many segments."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SEGMENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """A buffer of `total_bytes` in `ranks` chunks of `per_chunk` segments; the last segments may be short, or empty."""

    total_bytes: int
    ranks: int
    per_chunk: int
    segment_bytes: int

    @property
    def count(self) -> int:
        """Number of segments, empty ones included."""
        return self.ranks * self.per_chunk

    def sizes_bytes(self) -> list[int]:
        """Return the bytes of every segment."""
        full, rest = divmod(self.total_bytes, self.segment_bytes)
        return ([self.segment_bytes] * full + [rest] + [0] * self.count)[: self.count]

    def span_bytes(self, first: int, count: int) -> int:
        """Return the bytes of `count` segments from `first` on, without wrapping around."""
        start = min(self.total_bytes, first * self.segment_bytes)
        return min(self.total_bytes, (first + count) * self.segment_bytes) - start

    def chunk_bytes(self, chunk: int) -> int:
        """Return the bytes of a chunk, whose number counts modulo the ranks."""
        return self.span_bytes(chunk % self.ranks * self.per_chunk, self.per_chunk)

    def count_filled(self, first: int, count: int) -> int:
        """Return how many of `count` segments from `first` on are not empty, without wrapping around."""
        full = -(-self.total_bytes // self.segment_bytes)
        return min(full, first + count) - min(full, first)


def all_reduce_segments(total_bytes: int, element_size: int, ranks: int) -> Segments:
    """Cut for an all-reduce: at least two segments per chunk, none above 1 MiB, whole elements; the count is fixed
    first.
    """
    per_chunk = -(-max(-(-total_bytes // _limit_bytes(element_size)), 2 * ranks) // ranks)
    segment_bytes = _round_up(-(-total_bytes // (per_chunk * ranks)), element_size)
    return Segments(total_bytes=total_bytes, ranks=ranks, per_chunk=per_chunk, segment_bytes=segment_bytes)


def reduce_segments(total_bytes: int, element_size: int, ranks: int) -> Segments:
    """Cut for a reduce, as for an all-reduce, but the segments' size is fixed first, and their count follows."""
    even = -(-total_bytes // (2 * ranks))
    segment_bytes = _round_up(min(even, _limit_bytes(element_size)), element_size)
    per_chunk = -(-max(-(-total_bytes // segment_bytes), 2 * ranks) // ranks)
    return Segments(total_bytes=total_bytes, ranks=ranks, per_chunk=per_chunk, segment_bytes=segment_bytes)


def _limit_bytes(element_size: int) -> int:
    return element_size * max(1, MAX_SEGMENT_BYTES // element_size)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple

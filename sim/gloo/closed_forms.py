"""Closed forms of the totals of gloo's rings and exchanges, whose schedules grow with the square of the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from sim.gloo.script import Totals
from sim.gloo.segments import all_reduce_segments, reduce_segments

if TYPE_CHECKING:
    from scenarios.seam.calls import Call

Calls: TypeAlias = "Sequence[Call]"
# Verbs that torch's gloo makes of an all-reduce for each tensor.
IN_PARTS = ("reduce_scatter", "reduce_scatter_tensor_coalesced")


# Adds the bytes by directed pair, latency steps and local work of calls.
ClosedForm: TypeAlias = Callable[[Totals, Calls], None]


def all_reduce(sums: Totals, calls: Calls) -> None:
    """Add all-reduces: rank r sends every chunk but r while reducing and every chunk but r-1 while gathering."""
    for size_bytes in reduced_parts(calls[0]):
        _all_reduce_part(sums, calls, size_bytes)


def _all_reduce_part(sums: Totals, calls: Calls, size_bytes: int) -> None:
    ranks, call = len(calls), calls[0]
    if ranks == 1 or size_bytes == 0:
        return
    parts = all_reduce_segments(size_bytes, call.element_size, ranks)
    filled = [parts.count_filled(chunk * parts.per_chunk, parts.per_chunk) for chunk in range(ranks)]
    every = sum(filled)
    for rank in range(ranks):
        left = (rank - 1) % ranks
        # Empty segments are not sent, so messages are counted by filled segments and bytes by chunks.
        count = 2 * every - filled[rank] - filled[left]
        sent_bytes = 2 * parts.total_bytes - parts.chunk_bytes(rank) - parts.chunk_bytes(left)
        sums.messages(rank, left, count, sent_bytes)
        sums.reduce_bytes[rank] += parts.total_bytes - parts.chunk_bytes(rank + 1)
        sums.latency_steps[rank] += 2 * _ring_steps(parts.count - parts.per_chunk)


def all_reduce_of_copy(sums: Totals, calls: Calls) -> None:
    """Add all-reduces of a copy of each member's input, whose results are copied out."""
    all_reduce(sums, calls)
    sums.copy_bytes = [call.bytes_in + call.bytes_out for call in calls]


def reduced_parts(call: Call) -> tuple[int, ...]:
    """Return the bytes of each all-reduce that a call is: one for each tensor of a reduce-scatter of several."""
    if call.op not in IN_PARTS:
        return (call.bytes_in,)
    ranks = len(call.group.ranks)
    return call.parts or (call.bytes_in // ranks,) * ranks


def reduce(sums: Totals, calls: Calls) -> None:
    """Add a reduce: rank r sends all segments but the last two of chunk r along the ring, then chunk r to the root."""
    ranks, call = len(calls), calls[0]
    if ranks == 1 or call.bytes_in == 0:
        return
    parts = reduce_segments(call.bytes_in, call.element_size, ranks)
    every, last = parts.count_filled(0, parts.count), [(rank + 1) * parts.per_chunk - 2 for rank in range(ranks)]
    for rank in range(ranks):
        left, kept_bytes = (rank - 1) % ranks, parts.span_bytes(last[rank], 2)
        sums.messages(rank, left, every - parts.count_filled(last[rank], 2), parts.total_bytes - kept_bytes)
        sums.reduce_bytes[rank] = parts.total_bytes - parts.span_bytes(last[(rank + 1) % ranks], 2)
        if rank != call.root and parts.chunk_bytes(rank):
            sums.messages(rank, call.root, 1, parts.chunk_bytes(rank))
        sums.latency_steps[rank] = _ring_steps(parts.count - 2) + (2 if rank == call.root else 1)


def _ring_steps(messages: int) -> int:
    """Return the latencies of a ring with two messages in flight: each pair waits for a notice and for data."""
    return 2 * -(-messages // 2)


def all_gather(sums: Totals, calls: Calls) -> None:
    """Add an all-gather: each member passes all shares but one to the right, in halves."""
    ranks, own_bytes = len(calls), calls[0].bytes_in
    sums.copy_bytes = [(ranks + 1) * own_bytes] * ranks
    if ranks > 1 and own_bytes:
        for rank in range(ranks):
            sums.messages(rank, (rank + 1) % ranks, 2 * (ranks - 1), (ranks - 1) * own_bytes)
        sums.latency_steps = [_ring_steps(2 * (ranks - 1))] * ranks


def all_gather_list(sums: Totals, calls: Calls) -> None:
    """Add an all-gather, or an all-to-all where members' sizes differ."""
    if calls[0].parts:
        all_to_all(sums, [as_all_to_all(call) for call in calls])
    else:
        all_gather(sums, calls)


def as_all_to_all(call: Call) -> Call:
    """Return an all-gather of tensors of several sizes as an all-to-all in which a member sends its tensor to each
    other.
    """
    sends = (call.bytes_in,) * len(call.parts)
    return replace(call, bytes_in=sum(sends), send_bytes=sends, recv_bytes=call.parts)


def all_to_all_single(sums: Totals, calls: Calls) -> None:
    """Add a message between each pair of members."""
    for rank, call in enumerate(calls):
        sums.copy_bytes[rank] = call.send_bytes[rank]
        for target, size_bytes in enumerate(call.send_bytes):
            if target != rank:
                sums.messages(rank, target, 1, size_bytes)
    # All messages are posted at once: a latency for notices, a latency for data.
    sums.latency_steps = [2 if len(calls) > 1 else 0] * len(calls)


def all_to_all(sums: Totals, calls: Calls) -> None:
    """Add an all-to-all of one buffer, to and from which lists are copied."""
    all_to_all_single(sums, calls)
    for rank, call in enumerate(calls):
        sums.copy_bytes[rank] += call.bytes_in + call.bytes_out

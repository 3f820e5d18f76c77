"""gloo's collectives as message schedules (torch 2.13, TCP).

Bytes agree with the kernel's counters (tests/vectors/data/gloo_wire_bytes.json), the order of posts with a trace of
gloo's system calls. As in gloo, a member's script depends on its own call only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from scenarios.seam.traits import MESSAGES
from sim.gloo import closed_forms
from sim.gloo.closed_forms import IN_PARTS, as_all_to_all, reduced_parts
from sim.gloo.script import Copy, Reduce, Script, ScriptWriter, Totals, WaitRecv, WaitSend
from sim.gloo.script import totals as schedule_totals
from sim.gloo.segments import Segments, all_reduce_segments, reduce_segments

if TYPE_CHECKING:
    from scenarios.seam.calls import Call

# A monitored barrier sends messages of one int32 (torch 2.13, by the kernel's counters).
MONITORED_BYTES = 4


def script(call: Call) -> Script:
    """Return the sends, receives, waits and local work of the member that makes this call, in order.

    `bytes_in` of a `gather` is the member's contribution, `bytes_out` of a `scatter` its share, on the root as on
    others; `bytes_in` of a `reduce` is the buffer, on every member. All members' sizes are equal, as torch requires.
    """
    writer = ScriptWriter()
    _ALGORITHMS[call.op][0](writer, call, call.group.ranks.index(call.rank))
    return writer.script()


def schedule(calls: Sequence[Call]) -> tuple[Script, ...]:
    """Return every member's script; `calls` are in group-rank order, or just a send and its recv in any order."""
    if calls[0].op not in MESSAGES:
        return tuple(script(call) for call in calls)
    written = {call.group.index(call.rank): script(call) for call in calls}
    return tuple(written.get(member, ()) for member in range(calls[0].group.size))


def totals(calls: Sequence[Call]) -> Totals:
    """Return the bytes, messages and local work of the calls' schedule.

    A closed form saves the schedule, whose time grows with the pairs that exchange. Its `latency_steps` of rings are an
    upper bound if the buffer leaves segments empty (fewer than 2p elements, or a last chunk that rounding emptied).
    """
    form = _ALGORITHMS[calls[0].op][1]
    if form is None:
        return schedule_totals(schedule(calls))
    sums = Totals(len(calls))
    form(sums, calls)
    return sums


def _all_reduce(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write a ring reduce-scatter and a ring all-gather of the reduced chunks, both to the left, for each part.

    torch runs several on two threads; here they run one after the other.
    """
    for size_bytes in reduced_parts(call):
        _all_reduce_part(writer, call, rank, size_bytes)


def _all_reduce_part(writer: ScriptWriter, call: Call, rank: int, size_bytes: int) -> None:
    ranks = len(call.group.ranks)
    if ranks == 1 or size_bytes == 0:
        return
    parts = all_reduce_segments(size_bytes, call.element_size, ranks)
    steps = parts.count - parts.per_chunk
    # The reduce-scatter begins with the next rank's chunk, so that each rank ends with its own chunk reduced.
    _ring_left(writer, parts, rank, rank + 1, steps=steps, reduces=True)
    _ring_left(writer, parts, rank, rank, steps=steps, reduces=False)


def _all_reduce_of_copy(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write all-reduces between copies to and from one buffer, as torch's gloo coalesces and scatters."""
    writer.work(Copy(call.bytes_in))
    _all_reduce(writer, call, rank)
    writer.work(Copy(call.bytes_out))


def _ring_left(
    writer: ScriptWriter, parts: Segments, rank: int, first_chunk: int, *, steps: int, reduces: bool
) -> None:
    """Send segments from `first_chunk` on to rank-1 and receive those a chunk further from rank+1.

    Two of each are in flight; empty segments are skipped.
    """
    left, right = (rank - 1) % parts.ranks, (rank + 1) % parts.ranks
    # Three times, so that slices need no wrapping: a ring may begin a whole round in, and ends more than a round later.
    sizes, start = 3 * parts.sizes_bytes(), first_chunk * parts.per_chunk
    sends = sizes[start : start + steps]
    recvs = sizes[start + parts.per_chunk : start + parts.per_chunk + steps]
    flying: list[tuple[WaitRecv | None, Reduce, WaitSend | None]] = []
    for send_bytes, recv_bytes in zip(sends, recvs, strict=True):
        if len(flying) == 2:
            _settle(writer, *flying.pop(0))
        # Receive first, as in gloo's traced system calls: its notice leaves before the data.
        arrival = writer.recv(right, recv_bytes) if recv_bytes else None
        departure = writer.send(left, send_bytes) if send_bytes else None
        flying.append((arrival, Reduce(recv_bytes if reduces else 0), departure))
    for step in flying:
        _settle(writer, *step)


def _settle(writer: ScriptWriter, arrival: WaitRecv | None, work: Reduce, departure: WaitSend | None) -> None:
    if arrival:
        writer.wait(arrival)
        writer.work(work)
    if departure:
        writer.wait(departure)


def _reduce(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write a ring to the left until all but two segments have been sent, then send every chunk to the root.

    With more than two segments per chunk the ring runs longer than necessary, as in gloo.
    """
    ranks = len(call.group.ranks)
    if ranks == 1 or call.bytes_in == 0:
        return
    parts = reduce_segments(call.bytes_in, call.element_size, ranks)
    _ring_left(writer, parts, rank, rank + 1, steps=parts.count - 2, reduces=True)
    if rank == call.root:
        others = [(peer, parts.chunk_bytes(peer)) for peer in range(ranks) if peer != rank]
        writer.wait(*[writer.recv(peer, size_bytes) for peer, size_bytes in others if size_bytes])
    elif parts.chunk_bytes(rank):
        writer.wait(writer.send(call.root, parts.chunk_bytes(rank)))


def _all_gather(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write a ring to the right in half chunks, two in flight, on a flat buffer that is copied to the output at the
    end.
    """
    own_bytes, ranks = call.bytes_in, len(call.group.ranks)
    writer.work(Copy(own_bytes))
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    halves = (own_bytes // 2, own_bytes - own_bytes // 2)
    flying: list[tuple[WaitSend, WaitRecv]] = []
    for step in range(2 * (ranks - 1) if own_bytes else 0):
        if len(flying) == 2:
            writer.wait(*flying.pop(0))
        # Send first, unlike in an all-reduce, as in gloo's traced system calls.
        flying.append((writer.send(right, halves[step % 2]), writer.recv(left, halves[step % 2])))
    for waits in flying:
        writer.wait(*waits)
    writer.work(Copy(ranks * own_bytes))


def _all_gather_list(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write an all-gather; tensors of several sizes, which torch's gloo refuses, are an all-to-all."""
    if call.parts:
        _all_to_all(writer, as_all_to_all(call), rank)
    else:
        _all_gather(writer, call, rank)


def _broadcast(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write a binomial tree: in round i each owner of the buffer sends it to the rank 2**i further, counted from the
    root.
    """
    ranks, size_bytes = len(call.group.ranks), call.bytes_in + call.bytes_out
    place = (rank - call.root) % ranks
    if place:
        # The parent's place is this one without its highest bit: it got the buffer in an earlier round.
        parent = place - (1 << (place.bit_length() - 1))
        writer.wait(writer.recv((parent + call.root) % ranks, size_bytes))
    # gloo posts all sends at once, so they share the links.
    children = [(child + call.root) % ranks for child in broadcast_children(place, ranks)]
    writer.wait(*[writer.send(child, size_bytes) for child in children])


def broadcast_children(place: int, ranks: int) -> list[int]:
    """Return the places that a rank forwards a broadcast to; places are counted from the root."""
    rounds = range(place.bit_length(), ranks.bit_length())
    return [place + (1 << i) for i in rounds if place + (1 << i) < ranks]


def _gather(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write sends to the root, all at once, into a flat buffer that is copied to the output at the end."""
    ranks, share_bytes = len(call.group.ranks), call.bytes_in
    if rank != call.root:
        writer.wait(writer.send(call.root, share_bytes))
        return
    # All receives are posted before the root's own copy, which so overlaps with arrivals.
    arrivals = [writer.recv(peer, share_bytes) for peer in range(ranks) if peer != rank]
    writer.work(Copy(share_bytes))
    writer.wait(*arrivals)
    writer.work(Copy(ranks * share_bytes))


def _scatter(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write sends from the root, all at once."""
    if rank != call.root:
        writer.wait(writer.recv(call.root, call.bytes_out))
        return
    departures = [writer.send(peer, call.bytes_out) for peer in range(len(call.group.ranks)) if peer != rank]
    writer.work(Copy(call.bytes_out))
    writer.wait(*departures)


def _all_to_all_single(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Post all messages at once, empty ones too: the send to rank+i, then the receive from rank-i."""
    ranks = len(call.group.ranks)
    writer.work(Copy(call.send_bytes[rank]))
    waits: list[WaitSend | WaitRecv] = []
    for distance in range(1, ranks):
        target, source = (rank + distance) % ranks, (rank - distance) % ranks
        waits += (writer.send(target, call.send_bytes[target]), writer.recv(source, call.recv_bytes[source]))
    writer.wait(*waits)


def _all_to_all(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write the list form, which packs inputs into one buffer and unpacks outputs from another."""
    writer.work(Copy(call.bytes_in))
    _all_to_all_single(writer, call, rank)
    writer.work(Copy(call.bytes_out))


def _barrier(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write a dissemination barrier: round i receives from the rank 2**i before and sends to the rank 2**i further."""
    ranks = len(call.group.ranks)
    for distance in (1 << i for i in range((ranks - 1).bit_length())):
        arrival = writer.recv((rank - distance) % ranks, 0)
        departure = writer.send((rank + distance) % ranks, 0)
        writer.wait(arrival, departure)


def _monitored_barrier(writer: ScriptWriter, call: Call, rank: int) -> None:
    """Write a barrier in which the first member receives from all others in order, and then answers them."""
    others = range(1, len(call.group.ranks))
    if rank:
        writer.wait(writer.send(0, MONITORED_BYTES))
        writer.wait(writer.recv(0, MONITORED_BYTES))
        return
    for peer in others:
        writer.wait(writer.recv(peer, MONITORED_BYTES))
    for peer in others:
        writer.wait(writer.send(peer, MONITORED_BYTES))


# A member's script, and the closed form of all members' totals where it saves much.
_Algorithm: TypeAlias = "tuple[Callable[[ScriptWriter, Call, int], None], closed_forms.ClosedForm | None]"
_COPIED = (_all_reduce_of_copy, closed_forms.all_reduce_of_copy)
_GATHERED = (_all_gather, closed_forms.all_gather)
_ALGORITHMS: dict[str, _Algorithm] = {
    "all_reduce": (_all_reduce, closed_forms.all_reduce),
    **dict.fromkeys(("all_reduce_coalesced", "reduce_scatter_tensor", *IN_PARTS), _COPIED),
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_coalesced"), _GATHERED),
    "all_gather": (_all_gather_list, closed_forms.all_gather_list),
    "broadcast": (_broadcast, None),
    "reduce": (_reduce, closed_forms.reduce),
    "gather": (_gather, None),
    "scatter": (_scatter, None),
    "all_to_all": (_all_to_all, closed_forms.all_to_all),
    "all_to_all_single": (_all_to_all_single, closed_forms.all_to_all_single),
    "barrier": (_barrier, None),
    "monitored_barrier": (_monitored_barrier, None),
    "send": (lambda writer, call, _: writer.wait(writer.send(call.root, call.bytes_in)), None),
    "recv": (lambda writer, call, _: writer.wait(writer.recv(call.root, call.bytes_out)), None),
}
_OTHER_RINGS = (_all_gather, _all_gather_list, _reduce)


def rings(call: Call) -> int:
    """Return how many rings a member runs, one after the other; 0 if the call is no ring."""
    writer = _ALGORITHMS[call.op][0]
    if writer in (_all_reduce, _all_reduce_of_copy):
        return len(reduced_parts(call))
    return int(writer in _OTHER_RINGS and not (writer is _all_gather_list and call.parts))

"""Instructions of a collective's members, message by message, and their totals.

A `Script` is one member's program: its instructions in order, with peers by group rank. A message is identified by
(source, destination, tag); the tag counts the messages of one directed pair. On the wire a message of L bytes from a to
b is three things: a notice of NOTICE_BYTES from a ("something to send"), one from b ("ready to receive"), and then
HEADER_BYTES + L from a, all in the first-in-first-out queue of their direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

NOTICE_BYTES = 48
HEADER_BYTES = 48


@dataclass(frozen=True, slots=True)
class Send:
    """An instruction: post a send and go on."""

    peer: int
    size_bytes: int
    tag: int


@dataclass(frozen=True, slots=True)
class Recv:
    """An instruction: post a receive and go on."""

    peer: int
    size_bytes: int
    tag: int


@dataclass(frozen=True, slots=True)
class WaitSend:
    """An instruction: block until the posted send of this tag to `peer` has left."""

    peer: int
    tag: int


@dataclass(frozen=True, slots=True)
class WaitRecv:
    """An instruction: block until the posted receive of this tag from `peer` has arrived."""

    peer: int
    tag: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """An instruction: combine `size_bytes` received bytes with as many local ones."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Copy:
    """An instruction: copy `size_bytes` bytes in local memory."""

    size_bytes: int


Instruction: TypeAlias = Send | Recv | WaitSend | WaitRecv | Reduce | Copy
Script: TypeAlias = tuple[Instruction, ...]


class Totals:
    """A schedule's sums, for fidelity "links"; lists are by group rank.

    `pair_bytes[source, destination]` counts payload, headers and notices; pairs without traffic are absent.
    `latency_steps`: number of one-way latencies until that member finishes, if bytes and arithmetic took no time and
    all members entered at once. `reduce_bytes`, `copy_bytes`: local work.
    """

    __slots__ = ("copy_bytes", "latency_steps", "pair_bytes", "reduce_bytes")

    def __init__(self, ranks: int) -> None:
        self.pair_bytes: dict[tuple[int, int], int] = {}
        self.latency_steps = [0] * ranks
        self.reduce_bytes = [0] * ranks
        self.copy_bytes = [0] * ranks

    def messages(self, source: int, target: int, count: int, size_bytes: int) -> None:
        """Add `count` messages of `size_bytes` together, with the notices of both sides."""
        if count:
            there, back, pairs = (source, target), (target, source), self.pair_bytes
            pairs[there] = pairs.get(there, 0) + count * (NOTICE_BYTES + HEADER_BYTES) + size_bytes
            pairs[back] = pairs.get(back, 0) + count * NOTICE_BYTES


class ScriptWriter:
    """A writer of one script, which numbers the messages of each directed pair."""

    __slots__ = ("_instructions", "_received", "_sent")

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}

    def send(self, peer: int, size_bytes: int) -> WaitSend:
        """Post a send; return the instruction that waits until it has left."""
        tag = self._sent.get(peer, 0)
        self._sent[peer] = tag + 1
        self._instructions.append(Send(peer, size_bytes, tag))
        return WaitSend(peer, tag)

    def recv(self, peer: int, size_bytes: int) -> WaitRecv:
        """Post a receive; return the instruction that waits until it has arrived."""
        tag = self._received.get(peer, 0)
        self._received[peer] = tag + 1
        self._instructions.append(Recv(peer, size_bytes, tag))
        return WaitRecv(peer, tag)

    def wait(self, *waits: WaitSend | WaitRecv) -> None:
        """Append waits to the script."""
        self._instructions += waits

    def work(self, instruction: Copy | Reduce) -> None:
        """Append local work of more than 0 bytes."""
        if instruction.size_bytes:
            self._instructions.append(instruction)

    def script(self) -> Script:
        """Return the instructions so far."""
        return tuple(self._instructions)


def totals(scripts: Sequence[Script]) -> Totals:
    """Sum each script's messages and local work, in a time that grows with the number of messages."""
    sums = Totals(len(scripts))
    sums.latency_steps = latency_steps(scripts)
    for rank, script in enumerate(scripts):
        for instruction in script:
            match instruction:
                case Send(peer, size_bytes, _):
                    sums.messages(rank, peer, 1, size_bytes)
                case Reduce(size_bytes):
                    sums.reduce_bytes[rank] += size_bytes
                case Copy(size_bytes):
                    sums.copy_bytes[rank] += size_bytes
    return sums


def latency_steps(scripts: Sequence[Script]) -> list[int]:
    """Return when each member ends, if a latency is 1 and nothing else takes time.

    Data leaves once the send is posted and the receiver's notice has arrived, one latency after the receive was posted.
    """
    posted: dict[tuple[type, int, int, int], int] = {}
    clocks = [0] * len(scripts)
    rest = [iter(script) for script in scripts]
    blocked: dict[int, WaitSend | WaitRecv | None] = dict.fromkeys(range(len(rest)))
    while blocked:
        # Rounds over all members instead of a queue of events: a schedule without progress in a round is a deadlock.
        before = len(posted), len(blocked)
        for rank in tuple(blocked):
            first = blocked[rank]
            left = rest[rank] if first is None else chain((first,), rest[rank])
            wait = _advance(rank, left, clocks, posted)
            if wait is None:
                del blocked[rank]
            else:
                blocked[rank] = wait
        assert (len(posted), len(blocked)) != before, f"the schedule never ends: {blocked}"
    return clocks


def _advance(
    rank: int, left: Iterator[Instruction], clocks: list[int], posted: dict[tuple[type, int, int, int], int]
) -> WaitSend | WaitRecv | None:
    """Run one member until it waits for a message that its peer has not posted; return the wait, None at the end."""
    for instruction in left:
        match instruction:
            case Send(peer, _, tag):
                posted[Send, rank, peer, tag] = clocks[rank]
            case Recv(peer, _, tag):
                posted[Recv, peer, rank, tag] = clocks[rank]
            case WaitSend(peer, tag) | WaitRecv(peer, tag):
                arrives = isinstance(instruction, WaitRecv)
                pair = (peer, rank) if arrives else (rank, peer)
                send, recv = posted.get((Send, *pair, tag)), posted.get((Recv, *pair, tag))
                if send is None or recv is None:
                    return instruction
                clocks[rank] = max(clocks[rank], max(send, recv + 1) + arrives)
    return None

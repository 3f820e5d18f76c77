"""Compares the calls that the members of a group are about to make, before any data moves; call checkers run it.

A call travels as 10 + 2 n int64 numbers in a group of n. Only when calls do not fit, a second exchange sends labels and
sentences, so that every member reports the same error. The sender and receiver of a message form a group of two and
swap their calls with tags of their own.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from real.libraries.errors import transport
from real.libraries.moves import Joined, all_gather
from real.rank.journal import Entry, Journal
from real.rank.lanes import StreamLane
from real.supervise.rank_status import ranks
from scenarios.seam.arguments import REDUCE_OPS
from scenarios.seam.calls import SET_UP_MISTAKES, Call, SetUp, set_up_disagreement
from scenarios.seam.collectives import COLLECTIVES, disagreement
from scenarios.seam.errors import CollectiveError, RankLostError
from scenarios.seam.group import Group

_OPS = tuple(COLLECTIVES)
_REDUCES = ("", *REDUCE_OPS.values())
_DTYPES = ("", *sorted({str(kind)[len("torch.") :] for kind in vars(torch).values() if isinstance(kind, torch.dtype)}))
# Numbers at a row's head: op, reduction, dtype, root, bytes in, bytes out, bytes of text, whether the arguments were
# refused, whether to compare the next call, `Call.layout`.
_HEAD = 10

# Takes this member's row; returns a row for each member, in group order.
Gather = Callable[[Tensor], Tensor]


class GroupAgreement:
    """The comparison of a group's calls; which calls are compared follows from the program.

    `is_on`: whether the next call is compared even if this rank does not request it.
    """

    is_on = False

    def __init__(self, joined: Joined) -> None:
        self._gather = partial(_gather, joined)

    def disagreement(self, call: Call, *, is_checked: bool) -> str | None:
        """Return an error sentence, identical on all members, if their calls do not fit, else None.

        Waits for all members if calls are compared.

        Raises:
            RuntimeError: the transport failed.
        """
        return _compare(call, self._gather).sentence if is_checked else None


class PairAgreement(GroupAgreement):
    """The comparison of a send with its recv; a message may be sent in one step and received in the next.

    Whether to compare must therefore not depend on when either was issued. The first message is compared; both sides
    state with each comparison whether they want to compare the next, which happens if both do.
    """

    def __init__(self, joined: Joined, rank: int, pair: Group, *, is_on: bool) -> None:
        self.is_on = is_on
        self._gather = partial(_swap, joined, rank, pair)

    def disagreement(self, call: Call, *, is_checked: bool) -> str | None:
        """Agree on the group, as `GroupAgreement` describes it."""
        if not self.is_on:
            return None
        compared = _compare(call, self._gather, goes_on=is_checked)
        self.is_on = compared.goes_on
        return compared.sentence


@dataclass(frozen=True, slots=True)
class _Compared:
    sentence: str | None
    goes_on: bool


def _compare(call: Call, gather: Gather, *, goes_on: bool = True) -> _Compared:
    rows = gather(torch.tensor(_numbers(call, goes_on), dtype=torch.int64)).tolist()
    calls = {member: _call(call.group, member, row) for member, row in enumerate(rows)}
    sentence = disagreement(calls)
    if sentence is not None:
        texts = _gather_texts(call, gather, max(row[6] for row in rows))
        sentence = disagreement({member: _set_words(calls[member], text) for member, text in enumerate(texts)})
    return _Compared(sentence, all(row[8] for row in rows))


def _numbers(call: Call, goes_on: bool) -> list[int]:
    words = [_OPS.index(call.op), _REDUCES.index(call.reduce), _DTYPES.index(call.dtype)]
    head = [
        *words,
        call.root,
        call.bytes_in,
        call.bytes_out,
        len(_text(call)),
        bool(call.mistake),
        goes_on,
        call.layout,
    ]
    sizes = [*call.send_bytes, *call.recv_bytes]
    # Padded: an all-gather needs rows of one length from all members, also if their operations differ.
    return head + sizes + [0] * (2 * call.group.size - len(sizes))


def _call(group: Group, member: int, row: list[int]) -> Call:
    """Rebuild another member's call from its row, as far as `disagreement` needs it; texts are still missing."""
    op = _OPS[row[0]]
    exchanges = COLLECTIVES[op].has_splits and not row[7]
    return Call(
        op=op,
        group=group,
        rank=group.ranks[member],
        reduce=_REDUCES[row[1]],
        dtype=_DTYPES[row[2]],
        root=row[3],
        bytes_in=row[4],
        bytes_out=row[5],
        mistake="refused" if row[7] else "",
        layout=row[9],
        send_bytes=tuple(row[_HEAD : _HEAD + group.size]) if exchanges else (),
        recv_bytes=tuple(row[_HEAD + group.size :]) if exchanges else (),
    )


def _gather_texts(call: Call, gather: Gather, longest: int) -> list[str]:
    # `longest` came with the first exchange, so that all members gather equally many bytes.
    own = torch.tensor(list(_text(call).ljust(longest, b"\0")), dtype=torch.uint8)
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in gather(own)]


def _text(call: Call) -> bytes:
    return (call.mistake or call.label).encode()


def _set_words(call: Call, text: str) -> Call:
    return replace(call, mistake=text) if call.mistake else replace(call, label=text)


def _gather(joined: Joined, own: Tensor) -> Tensor:
    # Through the library itself: it keeps these calls in one order with the group's collectives on every member.
    everyone = own.new_empty((joined.group.size, own.numel()))
    sent = all_gather(joined, everyone, own)
    sent.work.wait()
    sent.end()
    return everyone


def _swap(joined: Joined, rank: int, pair: Group, own: Tensor) -> Tensor:
    """Exchange rows between source and target of messages; return both in this order, waiting for the other side.

    Tags keep rows apart from messages: messages have tag 0, the source's rows 1, the target's 2.
    """
    place = pair.index(rank)
    rows, other = own.new_empty((2, own.numel())), pair.ranks[1 - place]
    rows[place] = own
    # Both begin before either is waited for: two sides that first sent and then received could block each other.
    works = [
        dist.isend(own, other, group=joined.handle, tag=1 + place),
        dist.irecv(rows[1 - place], other, group=joined.handle, tag=2 - place),
    ]
    for work in works:
        assert work is not None, "both are in the group"
        work.wait()
    return rows


class GroupAgreements:
    """The set-up calls of one rank: all ranks make equal calls in one order, on any streams."""

    def __init__(self, store: Store, journal: Journal, world_size: int, within_s: float) -> None:
        """Store the arguments; `within_s` is how long the ranks wait for each other."""
        self._store, self._journal, self._within = store, journal, timedelta(seconds=within_s)
        self._everyone = Group("set-ups", tuple(range(world_size)))
        self._lock = threading.RLock()

    @contextmanager
    def agree(self, check: Callable[[], SetUp], lane: StreamLane, stream: str) -> Iterator[SetUp]:
        """Yield the checked call once all ranks have made it; what the body sets up happens in one order on all ranks.

        Raises:
            TypeError, ValueError, ProgramError: raised by `check`, at once.
            CollectiveError: another rank made another call, or its call was refused; the same sentence on each rank.
            RankLostError: some ranks did not come in time.
        """
        # Held over the body, too: set-ups of two streams must reach the transport in one order on all ranks.
        with self._lock:
            index = self._journal.next_call(self._everyone.name)
            try:
                own = check()
            except SET_UP_MISTAKES as mistake:
                # The other ranks wait for this rank's call, and fail with its sentence.
                self._tell(index, SetUp(mistake=str(mistake)))
                raise
            self._tell(index, own)
            sentence = set_up_disagreement(self._hear_all(index, own, lane, stream))
            if sentence is not None:
                raise CollectiveError(sentence)
            yield own

    def _tell(self, index: int, own: SetUp) -> None:
        with transport(self._journal.rank, str(own)):
            self._store.set(_key(index, self._journal.rank), json.dumps(dataclasses.asdict(own)))

    def _hear_all(self, index: int, own: SetUp, lane: StreamLane, stream: str) -> dict[int, SetUp]:
        """Return every rank's call, once all have come; meanwhile this rank's journal shows it waiting."""
        keys = [_key(index, rank) for rank in self._everyone.ranks]
        entry = Entry(lane, stream, own.name, "")
        entry.call, entry.index = Call(op=own.verb, group=self._everyone, rank=self._journal.rank), index
        self._journal.note_issue(entry, is_awaited=False)
        self._journal.wait_begins(entry)
        with transport(self._journal.rank, str(own)):
            # On a separate connection: a blocking wait holds its connection's lock, which this process's threads share.
            store = self._store.clone()  # type: ignore[attr-defined]
            try:
                store.wait(keys, self._within)
            except dist.DistStoreError as error:
                missing = [rank for rank, key in zip(self._everyone.ranks, keys, strict=True) if not store.check([key])]
                sentence = f"rank {self._journal.rank} calls {own}, which {ranks(missing)} did not within"
                raise RankLostError(f"{sentence} {self._within.total_seconds():g} s") from error
            texts = store.multi_get(keys)
        entry.end = lane.mark()
        self._journal.wait_ends(entry, has_waited=True)
        return {rank: _set_up(text) for rank, text in zip(self._everyone.ranks, texts, strict=True)}


def _key(index: int, rank: int) -> str:
    return f"set-up/{index}/{rank}"


def _set_up(text: bytes) -> SetUp:
    fields = json.loads(text)
    return SetUp(**{**fields, "ranks": tuple(fields["ranks"])})

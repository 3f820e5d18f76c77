"""Calls of `new_group` and `stream`, told to all ranks by the store before anything is made; that is left to `seat`.

Without this, ranks that make groups in different order would exchange wrong data, and those of other members hang.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from real.libraries.errors import transport
from real.rank.journal import Entry, Journal
from real.rank.lanes import Lane
from real.supervise.rank_status import ranks
from scenarios.seam.calls import SET_UP_MISTAKES, Call, SetUp, set_up_disagreement
from scenarios.seam.errors import CollectiveError, RankLostError
from scenarios.seam.group import Group


class GroupAgreements:
    """Those of one rank: the same calls in the same order as on all others, whatever stream they are made on."""

    def __init__(self, store: Store, journal: Journal, world_size: int, within_s: float) -> None:
        """`within_s` is how long the ranks wait for each other."""
        self._store, self._journal, self._within = store, journal, timedelta(seconds=within_s)
        self._everyone = Group("set-ups", tuple(range(world_size)))
        self._lock = threading.RLock()

    @contextmanager
    def agreed(self, check: Callable[[], SetUp], lane: Lane, stream: str) -> Iterator[SetUp]:
        """The checked call, which all ranks make; what is made of it inside, they make in the same order.

        Raises:
            TypeError, ValueError, ProgramError: what `check` does, at once.
            CollectiveError: others make another call, or theirs was refused: the same sentence on each of them.
            RankLostError: some did not come in time.
        """
        with self._lock:
            index = self._journal.next_call(self._everyone.name)
            try:
                own = check()
            except SET_UP_MISTAKES as mistake:
                self._tell(index, SetUp(mistake=str(mistake)))
                raise
            self._tell(index, own)
            sentence = set_up_disagreement(self._heard(index, own, lane, stream))
            if sentence is not None:
                raise CollectiveError(sentence)
            yield own

    def _tell(self, index: int, own: SetUp) -> None:
        with transport(self._journal.rank, str(own)):
            self._store.set(_key(index, self._journal.rank), json.dumps(dataclasses.asdict(own)))

    def _heard(self, index: int, own: SetUp, lane: Lane, stream: str) -> dict[int, SetUp]:
        """Every rank's, once it has come; until then this rank is seen to wait."""
        keys = [_key(index, rank) for rank in self._everyone.ranks]
        entry = Entry(lane, stream, own.name, "", -1)
        entry.call, entry.index = Call(op=own.verb, group=self._everyone, rank=self._journal.rank), index
        self._journal.issued(entry, is_awaited=False)
        self._journal.wait_begins(entry)
        with transport(self._journal.rank, str(own)):
            # On a connection of its own: a wait keeps its connection from everyone else in this process.
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

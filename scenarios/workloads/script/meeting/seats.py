"""Which of the ranks that a script starts itself this process is: rank r of a spawn is rank r of the world."""

from __future__ import annotations

import os
import pickle
from argparse import Namespace
from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakSet

import torch.distributed as dist

from scenarios.do_nothing import do_nothing
from scenarios.workloads.script.events.notes import ScriptFailure
from scenarios.workloads.script.requests import ScriptLink

# The variables that say where ranks meet.
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")


class Seats:
    """The ranks that a script can start: those of the whole world, or those of this host.

    Attributes:
        environment: the variables that torchrun sets, as this process began with them.
        has_run: whether a rank that the script starts runs, or has run, in this process.
        groups: how often this process has made a group of all ranks.
        at_group: called as it is about to make one.
        pools: `trial.Workers` of all pools.
    """

    def __init__(self, link: ScriptLink) -> None:
        self._link, self._exchanges, self.has_run = link, count(), False
        self.groups = 0
        self.at_group: Callable[[], None] = do_nothing
        self.pools = WeakSet[Any]()
        self.environment = {name: value for name, value in os.environ.items() if _is_torchruns(name)}
        self.rank, self.world_size, self.local_rank, self.local_world_size = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        )

    def index(self, number: int) -> int | None:
        """Return which of `number` processes this one is; None: there are other numbers of ranks."""
        if number == self.world_size:
            return self.rank
        return self.local_rank if number == self.local_world_size else None

    def take(self, number: int, line: str, what: str = "") -> int:
        """Return which of `number` processes this one is; end the run with a sentence where there are other numbers."""
        found = self.index(number)
        if found is None:
            self.refuse(self.wrong_number(number, line, what))
            raise SystemExit(1)
        return found

    def wrong_number(self, number: int, line: str, what: str = "") -> str:
        """Return the sentence about a script that starts another number of ranks than there are."""
        hosts = self.world_size // self.local_world_size
        there = f"{self.local_world_size}, the ranks of a host, or {self.world_size}, all" if hosts > 1 else "1"
        there = there if self.world_size > 1 and hosts > 1 else str(self.world_size)
        hint = (
            f"pass --gpus-per-host {number}"
            if number > 0
            else "where torch.cuda.device_count() is 0, a profile of GPUs"
        )
        ranks = f"{number} {'rank' if number == 1 else 'ranks'}"
        return f"{line}: starts {ranks} of its own{what}: expected {there}, as many as there are here: {hint}"

    def begin_group(self) -> None:
        """Note that this process is about to make a group of all ranks."""
        self.groups += 1
        self.at_group()

    def refuse(self, sentence: str) -> None:
        """End the run."""
        self._link.ask(ScriptFailure(sentence))

    def of_first(self, value: Any, number: int | None = None) -> Any:
        """Return what the first of `number` ranks that a parent starts has of a value, rank 0 without a number, as a
        parent computes once what it gives to all: numbers and texts (ports, seeds, folders), in tuples, lists, dicts
        and Namespaces; the rest is this rank's own. As many as a host has are the ranks of one host.
        """
        first = self.rank - self.local_rank if number == self.local_world_size != self.world_size else 0
        if self.world_size == 1:
            return value
        store, key = self._link.store(), f"twinstep/started/{first}/{next(self._exchanges)}"
        if self.rank == first:
            store.set(key, pickle.dumps(plain(value)))  # type: ignore[arg-type]  # it takes bytes, too
            return value
        return with_plain(value, pickle.loads(store.get(key)))

    def run(self, function: Callable[[], Any]) -> Any:
        """Run what a rank's process would, with its meeting point as rank 0 has it."""
        self.has_run = True
        os.environ.update(self.of_first({name: os.environ.get(name, "") for name in MEETING_POINT}))
        return as_process(function)


def as_process(function: Callable[[], Any]) -> Any:
    """Run what a process would: the groups that it has made end with it."""
    try:
        return function()
    finally:
        if has_group():
            dist.destroy_process_group()


def has_group() -> bool:
    """Return whether this process is in a process group: then what it starts are no ranks but helpers."""
    return dist.is_initialized()


def _is_torchruns(name: str) -> bool:
    return name in ("RANK", "WORLD_SIZE", *MEETING_POINT) or name.startswith(
        ("LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_")
    )


class _Own:
    """What each rank has by itself."""


def plain(value: Any) -> Any:
    """Return a value without all that is not plain."""
    match value:
        case bool() | int() | float() | str() | bytes() | None:
            return value if type(value).__module__ == "builtins" else _Own
        case tuple() | list():
            return [plain(each) for each in value]
        case dict():
            return {key: plain(each) for key, each in value.items() if isinstance(key, str)}
        case Namespace():
            return plain(vars(value))
    return _Own


def with_plain(own: Any, first: Any) -> Any:
    """Return `own` with what rank 0 has, where that is plain and of the same form."""
    match own, first:
        case (tuple() | list(), list()) if len(own) == len(first) and type(own) in (tuple, list):
            return type(own)(with_plain(*each) for each in zip(own, first, strict=True))
        case dict(), dict():
            for key, value in first.items():
                if key in own:
                    own[key] = with_plain(own[key], value)
            return own
        case Namespace(), dict():
            with_plain(vars(own), first)
            return own
    return first if type(own) is type(first) and not isinstance(first, type) else own

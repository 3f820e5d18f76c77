"""The place of this process among the ranks that a script starts itself: rank r of a spawn is rank r of the world."""

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
from scenarios.workloads.recording.events.notes import ScriptFailure
from scenarios.workloads.script.requests import ScriptLink

# The environment variables of the rendezvous address.
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")


class Seats:
    """The ranks that a script can start: all of the world, or all of this host.

    Attributes:
        environment: torchrun's variables, as this process started with them.
        has_run: whether a rank that the script starts is running, or has run, in this process.
        groups: how many times this process has created a group of all ranks.
        at_group: called just before this process creates such a group.
        pools: the `trial.Workers` of all pools.
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
        """Return this process's index among `number` processes; None if that is the size of neither world nor host."""
        if number == self.world_size:
            return self.rank
        return self.local_rank if number == self.local_world_size else None

    def take(self, number: int, line: str, what: str = "") -> int:
        """Return this process's index among `number` processes; end the run with a sentence if there is none."""
        found = self.index(number)
        if found is None:
            self.refuse(self._wrong_number(number, line, what))
            raise SystemExit(1)
        return found

    def _wrong_number(self, number: int, line: str, what: str) -> str:
        there = str(self.world_size)
        if self.world_size > self.local_world_size:
            there = f"{self.local_world_size}, the ranks of a host, or {self.world_size}, all"
        hint = (
            f"pass --gpus-per-host {number}"
            if number > 0
            else "where torch.cuda.device_count() is 0, a profile of GPUs"
        )
        ranks = f"{number} {'rank' if number == 1 else 'ranks'}"
        return f"{line}: starts {ranks} of its own{what}: expected {there}, as many as there are here: {hint}"

    def begin_group(self) -> None:
        """Count a group of all ranks that this process is about to create, and call `at_group`."""
        self.groups += 1
        self.at_group()

    def refuse(self, sentence: str) -> None:
        """End the run with an error message."""
        self._link.ask(ScriptFailure(sentence))

    def of_first(self, value: Any, number: int | None = None) -> Any:
        """Return `value` with its plain parts replaced by the first rank's: a parent computes them once for all ranks.

        Plain parts are numbers and strings (ports, seeds, folders), also in tuples, lists, dicts and Namespaces; all
        else stays this rank's. The first rank is rank 0, or the host's first rank if `number` is the number of ranks
        per host.
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
        """Run `function` as a rank's process would, with rank 0's rendezvous address."""
        self.has_run = True
        os.environ.update(self.of_first({name: os.environ.get(name, "") for name in MEETING_POINT}))
        return as_process(function)


def as_process(function: Callable[[], Any]) -> Any:
    """Run `function`, and destroy the process groups that it leaves, as the end of a process would."""
    try:
        return function()
    finally:
        if has_group():
            dist.destroy_process_group()


def has_group() -> bool:
    """Return whether this process is in a process group; processes that it starts then are helpers, not ranks."""
    return dist.is_initialized()


def _is_torchruns(name: str) -> bool:
    return name in ("RANK", "WORLD_SIZE", *MEETING_POINT) or name.startswith(
        ("LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_")
    )


class _Own:
    """A marker in place of a value that is not plain, such as a queue: each rank has its own."""


def plain(value: Any) -> Any:
    """Return a value with all parts that are not plain replaced by `_Own`; tuples become lists and Namespaces dicts."""
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
    """Return `own` with the plain parts of `first`, wherever both have the same structure."""
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

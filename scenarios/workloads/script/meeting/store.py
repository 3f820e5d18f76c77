"""torch.distributed's stores in a simulated rank's process: each call is a request, so that other ranks can run."""

# torch's stubs differ from the signatures that its bindings take and call.
# mypy: disable-error-code="override, attr-defined, misc"

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count
from types import FunctionType, ModuleType
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from scenarios.workloads.script.meeting.stores import JOINED, AskStore
from scenarios.workloads.script.users_lines import users_line

_OURS = ("scenarios.", "real.", "sim.")
# The first port in place of one that the system would choose (port 0).
_FIRST_PORT = 40_000
_made: list[Store] = []  # kept alive: a C++ store that wraps one of them holds no reference to it

# Modules whose functions and classes can be replaced; where other modules have names of them, by id (comparing some of
# torch's names emits warnings); and the modules that were searched for names.
_REPLACED = ("torch", "multiprocessing.pool", "concurrent.futures")
_names = dict[int, list[tuple[ModuleType, str]]]()
_searched = set[str]()


class SimulatedStore(Store):
    """A store that all simulated ranks share, identified by its name."""

    def __init__(self, ask: Callable[[AskStore], Any], name: str) -> None:
        super().__init__()
        self._ask, self._name, self._own_timeout = ask, name, timedelta(seconds=300)
        _made.append(self)

    def _do(self, verb: str, *arguments: Any) -> Any:
        return self._ask(AskStore(self._name, verb, arguments, users_line(sys._getframe().f_back)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait for other ranks to set all keys; the run ends as a deadlock if they never do."""
        self._do("wait", list(keys))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Remove and return a queue's first value.

        Raises:
            QueueEmptyError: the queue is empty and `block` is False.
        """
        found = self._do("queue_pop", key, block)
        if found is None:
            raise dist.QueueEmptyError(f"queue {key} is empty")
        return bytes(found)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until `world_size` ranks have called `barrier` with this key."""
        if self.add(f"{key}/num_members", 1) == world_size:
            self.set(f"{key}/last_member", "1")
        self.wait([f"{key}/last_member"])

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> SimulatedStore:
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        self._own_timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._own_timeout


def _asking(verb: str) -> Callable[..., Any]:
    """Return a method that asks the simulator; torch's own take no keyword arguments either."""
    return lambda store, *arguments: store._do(verb, *arguments)


for _verb in (
    *("set", "get", "add", "append", "check", "compare_set", "delete_key", "num_keys", "list_keys"),
    *("queue_push", "queue_len"),
):
    setattr(SimulatedStore, _verb, _asking(_verb))


class _PrefixStore(PrefixStore):
    """A PrefixStore with the methods that torch's C++ does not forward to a store written in Python."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(prefix, store)
        self._prefix, self._store = prefix, store
        _made.append(self)

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def delete_key(self, key: str) -> bool:
        return bool(self._store.delete_key(self._key(key)))

    def num_keys(self) -> int:
        return int(self._store.num_keys())

    def list_keys(self) -> list[str]:
        start = self._key("")
        return [key.removeprefix(start) for key in self._store.list_keys() if key.startswith(start)]

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(self._key(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return bytes(self._store.queue_pop(self._key(key), block))

    def queue_len(self, key: str) -> int:
        return int(self._store.queue_len(self._key(key)))

    def clone(self) -> _PrefixStore:
        return self


def simulate_stores(ask: Callable[[AskStore], Any]) -> None:
    """Make torch.distributed create simulated stores, in which a rank that waits lets other ranks run."""
    rank, ports = int(os.environ["RANK"]), count(_FIRST_PORT + 100 * int(os.environ["RANK"]))

    class TCPStore(SimulatedStore):
        """A store identified by its port alone; the host name is ignored."""

        def __init__(
            self,
            host_name: str,
            port: int,
            world_size: int | None = None,
            is_master: bool = False,
            timeout: timedelta = timedelta(seconds=300),
            wait_for_workers: bool = True,
            *_: Any,
            **__: Any,
        ) -> None:
            self.host, self.port = host_name, int(port) or next(ports)
            super().__init__(ask, f"tcp:{self.port}")
            self._own_timeout = timeout
            self.add(JOINED, 1)
            if wait_for_workers and world_size is not None and world_size > 0:
                self._do("joined", world_size)

        @property
        def libuvBackend(self) -> bool:  # noqa: N802 - torch's name
            return True

    class FileStore(SimulatedStore):
        """A store identified by its file's path; the file is not written."""

        def __init__(self, file_name: str, world_size: int = -1) -> None:
            self.path = str(file_name)
            super().__init__(ask, f"file:{os.path.realpath(file_name)}")

    def rendezvous(url: str, rank: int = rank, world_size: int = -1, **_: Any) -> Iterator[tuple[Store, int, int]]:
        size = int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size
        here = int(os.environ["RANK"]) if rank < 0 else rank
        yield SimulatedStore(ask, url), here, size

    own = {"TCPStore": TCPStore, "FileStore": FileStore, "PrefixStore": _PrefixStore}
    put({getattr(dist, name): made for name, made in own.items()})
    put({sys.modules["torch.distributed.rendezvous"].rendezvous: rendezvous})


def put(instead: dict[Any, Any]) -> None:
    """Replace functions and classes of torch or of pools under every name that loaded modules have for them."""
    find_names()
    for usual, own in instead.items():
        assert id(usual) in _names, f"{usual} is in none of {_REPLACED}"
        for module, name in _names.get(id(usual), ()):
            # Unless the module has bound the name anew since it was searched.
            if module.__dict__.get(name) is usual:
                setattr(module, name, own)


def find_names() -> None:
    """Record under which names recently loaded modules hold functions and classes that `put` can replace."""
    for key in sys.modules.keys() - _searched:
        _searched.add(key)
        names = getattr(sys.modules[key], "__dict__", None)
        if key.startswith(_OURS) or type(names) is not dict:
            continue
        for name, found in names.items():
            kind = type(found)
            if (kind is FunctionType or issubclass(kind, type)) and str(found.__module__).startswith(_REPLACED):
                _names.setdefault(id(found), []).append((sys.modules[key], name))

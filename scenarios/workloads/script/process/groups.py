"""Creates torch.distributed's groups in a script's process through a link, under the script's names of backends.

Ways of creating groups that the simulation cannot follow are refused.
"""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from scenarios.workloads.recording.events.calls import NewGroup
from scenarios.workloads.recording.events.notes import ScriptFailure
from scenarios.workloads.script.meeting.guard import own_ranks
from scenarios.workloads.script.meeting.processes import Processes
from scenarios.workloads.script.meeting.seats import Seats
from scenarios.workloads.script.meeting.store import put
from scenarios.workloads.script.process.process_group import BACKEND
from scenarios.workloads.script.requests import ScriptLink
from scenarios.workloads.script.users_lines import users_line

# torch's name of the backend if a script names none.
_UNNAMED = "undefined"
_KNOWN = ("gloo", "nccl")
_FAKE = "fake"
_LISTED = " or ".join(_KNOWN)
# Options that only the backend named by a script would understand.
_OF_BACKEND = frozenset({"backend", "pg_options", "device_id", "use_local_synchronization"})


def install(link: ScriptLink, seats: Seats, processes: Processes) -> None:
    """Make torch.distributed's functions create groups whose calls go to the simulator over `link`.

    The groups keep the names of the backends that the script requests.
    """
    made = _Groups(link, seats, processes)
    dist.Backend.register_backend(BACKEND, made.create, extended_api=True, devices=["cpu", "cuda", "meta"])
    own = {"init_process_group": made.init_process_group, "new_group": made.new_group}
    own |= {"split_group": made.split_group, "shrink_group": _shrink_group}
    put({getattr(dist, name): function for name, function in own.items() if hasattr(dist, name)})


class _Groups:
    """Replacements of torch.distributed's functions that create groups."""

    def __init__(self, link: ScriptLink, seats: Seats, processes: Processes) -> None:
        self._link, self._named, self._world = link, _UNNAMED, dist.distributed_c10d._world
        self._seats, self._processes, self._made_count = seats, processes, count()
        self._begin, self._new_group, self._process = dist.init_process_group, dist.new_group, os.getpid()
        self._split_group = getattr(dist, "split_group", None)

    def create(self, options: Any, _: Any) -> dist.ProcessGroup:
        """Return the group that torch is creating."""
        return self._link.join(options, _backends(self._named))

    def init_process_group(
        self,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        group_name: str = "",
        *_: Any,
        **more: Any,
    ) -> None:
        """Create the group of all ranks; ranks rendezvous in a store of ours, whatever the script specifies.

        Raises:
            ValueError: the script's world size or rank differs from the environment's.
            RuntimeError: the backend is unknown here.
        """
        if os.getpid() != self._process:
            self._link.ask(ScriptFailure(own_ranks(users_line(sys._getframe().f_back))))
        self._seats.begin_group()
        self._processes.start()
        size, here = self._seats.world_size, self._seats.rank
        for key, given, there in (("world_size", world_size, size), ("rank", rank, here)):
            if given not in (-1, there):
                raise ValueError(f"init_process_group: {key} = {given}: expected {there}, as the environment says")
        self._named = str(backend or _UNNAMED).lower()
        _check_backends("init_process_group", self._named)
        self._link.begin()
        own = dist.PrefixStore(f"world {next(self._made_count)}", self._link.store())
        named: dict[str, Any] = {
            "timeout": timeout,
            "world_size": size,
            "rank": here,
            "store": own,
            "group_name": group_name,
        }
        self._begin(BACKEND, **named, **_without_backends(more))
        self._make(dist.group.WORLD)

    def new_group(
        self, ranks: Sequence[int] | None = None, timeout: Any = None, backend: str | None = None, *_: Any, **more: Any
    ) -> Any:
        """Create a further group; a group of torch's backend "fake" is torch's own, in which nothing is sent.

        Raises:
            ValueError: a rank is not in the world, or is listed twice.
            RuntimeError: the backend is unknown here.
        """
        size = dist.get_world_size()
        members = list(range(size)) if ranks is None else [int(rank) for rank in ranks]
        if len({*members}) < len(members) or not {*members} <= {*range(size)}:
            raise ValueError(f"new_group: ranks {members}: expected distinct ranks of a world of {size}")
        self._named = str(backend or dist.get_backend()).lower()
        if self._named == _FAKE:
            return self._new_group(members, timeout, _FAKE, **_without_backends(more))
        _check_backends("new_group", self._named)
        self._link.ask(NewGroup(members))
        return self._make(self._new_group(members, timeout, BACKEND, **_without_backends(more)))

    def split_group(
        self, parent_pg: Any = None, split_ranks: Sequence[Sequence[int]] | None = None, *given: Any, **more: Any
    ) -> Any:
        """Create a group per list of ranks, and return the one that contains this rank, or None.

        Raises:
            RuntimeError: the parent is not the group of all ranks; on CPUs, torch's own refusal.
        """
        if not torch.accelerator.is_available():
            assert self._split_group is not None, "it was there"
            return self._split_group(parent_pg, split_ranks, *given, **more)
        if parent_pg not in (None, dist.group.WORLD):
            raise RuntimeError("split_group: expected the group of all ranks as parent; new_group makes any group")
        if not split_ranks:
            raise ValueError("split_group: expected split_ranks, a list of lists of ranks")
        # All ranks make all groups, in one order: only so the calls of a new group meet in the simulator.
        found = [(ranks, self.new_group(ranks)) for ranks in map(sorted, split_ranks)]
        return next((group for ranks, group in found if dist.get_rank() in ranks), None)

    def _make(self, group: Any) -> Any:
        world = self._world
        if group in world.pg_map:
            # torch has noted our backend's name: scripts that ask for the group's backend must read their own.
            world.pg_map[group] = self._named, world.pg_map[group][1]
            world.pg_backend_config[group] = str(dist.BackendConfig(dist.Backend(self._named)))
        return group


def _check_backends(function: str, named: str) -> None:
    """Raise RuntimeError, as torch does, if a backend is unknown here."""
    for backend in dict.fromkeys(_backends(named).values()) if named != _UNNAMED else ():
        if backend not in (_UNNAMED, *_KNOWN):
            raise RuntimeError(f"{function}: there is no backend '{backend}' here: expected {_LISTED}")


def _shrink_group(*_: Any, **__: Any) -> Any:
    raise RuntimeError("shrink_group: expected new_group of the ranks that stay, as ranks that fail are not simulated")


def _without_backends(more: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in more.items() if key not in _OF_BACKEND}


def _backends(named: str) -> dict[str, str]:
    """Return the backend that torch would choose for each type of device."""
    return {kind: str(backend) for kind, backend in dist.BackendConfig(dist.Backend(named)).device_backend_map.items()}

"""A script on a real rank: in a process of its own, as torchrun would start it, whose rows become this rank's."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import weakref
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from real.libraries.errors import is_transports
from real.rank.backend import TorchBackend
from real.script.link import Place, main
from scenarios.config.scenario import Scenario
from scenarios.owned_folder import scratch
from scenarios.seam.errors import ProgramError, RankLostError, ScenarioError, ScriptError
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import environment_of
from scenarios.workloads.script.outcome import Outcome, check, process_ended
from scenarios.workloads.script.process.children import end

# How often a script that says nothing is asked where it stands.
_ASKING_S = 1.0
# How long a script whose steps are all recorded may stand still once another rank's has ended: it may wait for that.
_PATIENCE_S = 10.0


class MeasuredScript(Program):
    """`scenario.steps` steps of the script after its first, unless it ends before; records `loss`.

    Raises:
        ScenarioError: a recording is to be measured.
        ProgramError: it raises, or its process ends.
    """

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.options, Script)
        self.scenario, self.script = scenario, scenario.options
        if self.script.recording is not None:
            raise ScenarioError(f"{scenario.path}: expected the script itself on real ranks, not its recording")

    async def __call__(self, rank: Rank) -> None:
        assert isinstance(rank.backend, TorchBackend)
        _Watcher(self.scenario, self.script, rank, rank.backend).run()


class _Watcher:
    """The process of one rank's script, and what of it goes into the run."""

    def __init__(self, scenario: Scenario, script: Script, rank: Rank, backend: TorchBackend) -> None:
        self._journal, self._observer = backend.context.journal, backend.context.observer
        self._rank = f"rank {rank.rank}"
        self._moves: int | None = None  # of the script's, when it was last heard of,
        self._moved_s = time.monotonic()  # and when they had grown
        self._name, self._script = f"{self._rank}: {script.path}", script
        self._outcome: Outcome | None = None
        self._recorded: dict[str, Any] | None = None  # fields of the outcome, once all steps are recorded
        self._patience_s = min(_PATIENCE_S, scenario.timeout_s / 2)
        start = multiprocessing.get_context("spawn")
        self._connection, other = start.Pipe()
        place = Place(rank.rank, rank.host, rank.world_size, rank.local_world_size)
        self._meeting, address, port = _meeting_point(rank)
        self._store, self._over = dist.distributed_c10d._get_default_store(), f"script over {address}:{port}"
        owned = scratch()
        weakref.finalize(self, owned.remove)
        env = environment_of(script, rank, address=address, port=port, folder=owned.path)
        given = (other, place, scenario.steps, script, env)
        self._process = start.Process(target=main, args=given, daemon=True)
        self._process.start()
        other.close()

    def run(self) -> None:
        """Play until the script has ended on all ranks. One that goes wrong stays as long as this process."""
        while self._take(*self._next()):
            pass
        self._store.set(self._over, "")
        self._stands({"last": "its script's last line", "inside": False, "waits": []})
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(
            found, self._outcome
        )  # also as what others still read comes from processes that are there
        end(self._process)
        check(dict(enumerate(found)), self._script)

    def _next(self) -> tuple[str, Any]:
        while not self._connection.poll(_ASKING_S):
            if self._journal.elsewhere is None:
                self._journal.moves += 1  # it loads torch
                continue
            if self._recorded is not None and self._is_left():
                return "end", self._recorded
            with suppress(OSError):  # it has ended, as is seen below
                self._connection.send("at")
        try:
            found: tuple[str, Any] = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(1)
            raise ProgramError(f"{self._name}: {process_ended(self._process.exitcode)}") from None
        return found

    def _is_left(self) -> bool:
        """Return whether the script waits for another rank's, which has ended."""
        return time.monotonic() - self._moved_s > self._patience_s and self._store.check([self._over])

    def _take(self, kind: str, argument: Any) -> bool:
        """Return whether there is more to come."""
        if kind == "at":
            self._stands(argument)
        elif kind == "step":
            self._observer.step_begins(argument)
        elif kind == "rows":
            self._journal.take_over(*argument)
            self._observer.step_ends()
        elif kind == "ready":
            self._stands(argument)
            dist.barrier()
            self._connection.send("begin")
        elif kind == "recorded":
            self._recorded = argument
        elif kind == "end":
            self._outcome = Outcome(**argument)
        elif kind == "error":
            is_others = is_transports(RuntimeError(argument.partition("\n")[0]))
            raise (RankLostError if is_others else ScriptError)(f"{self._rank}: {argument}")
        return kind != "end"

    def _stands(self, at: dict[str, Any]) -> None:
        """Note what is new of where the script is; each time is a move of this process, on top of the script's own."""
        journal = self._journal
        if at.get("moves") != self._moves:
            journal.moves, self._moves = journal.moves + 1, at.get("moves")
            self._moved_s = time.monotonic()
        journal.elsewhere = {**(journal.elsewhere or {}), **at, "moves": journal.moves}


def _meeting_point(rank: Rank) -> tuple[Store | None, str, int]:
    """Return an address of the first rank's that the others reach, and the port of the store that it serves there.

    The script's ranks meet in that store, as torchrun's do in their agent's; the first rank holds it.
    """
    found: list[Any] = [None]
    store: TCPStore | None = None
    if rank.rank == 0:
        there = os.environ.get("MASTER_ADDR") or socket.gethostname()
        # Under the project's launcher others reach this rank by the way to the launcher, which may be elsewhere.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((there, 1))
            here = way.getsockname()[0]
        for address in (there, here):
            with suppress(OSError, RuntimeError):
                with socket.create_server((address, 0)):
                    pass  # it is one of this host's
                store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
                found = [(address, store.port)]
                break
    dist.broadcast_object_list(found)
    if found[0] is None:
        raise ProgramError(f"rank {rank.rank}: the script's ranks find no address at which to meet")
    return store, str(found[0][0]), int(found[0][1])

"""A program that runs a script on a real rank: in a process of its own, as torchrun would start it."""

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
from real.script.link import RankPlace, main
from scenarios.config.scenario import Scenario
from scenarios.owned_folder import scratch
from scenarios.seam.errors import ProgramError, RankLostError, ScenarioError, ScriptError
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import environment_of
from scenarios.workloads.script.outcome import Outcome, check, describe_end
from scenarios.workloads.script.process.children import end

# Interval at which a silent script's position is requested.
_ASKING_S = 1.0
# How long a script whose steps are all recorded may stand still once another rank's has ended: it may wait for it.
_PATIENCE_S = 10.0


class MeasuredScript(Program):
    """A program of `scenario.steps` steps of the script after its first, unless the script ends before; records `loss`.

    Raises:
        ScenarioError: the scenario names a recording, which cannot be measured.
        ProgramError: the script raises, or its process ends.
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
    """A watcher of one rank's script process, which copies the script's rows into the run."""

    def __init__(self, scenario: Scenario, script: Script, rank: Rank, backend: TorchBackend) -> None:
        self._journal, self._observer = backend.context.journal, backend.context.observer
        self._rank = f"rank {rank.rank}"
        self._moves: int | None = None  # the script's count at its last report
        self._moved_s = time.monotonic()  # when the count last grew
        self._name, self._script = f"{self._rank}: {script.path}", script
        self._outcome: Outcome | None = None
        self._recorded: dict[str, Any] | None = None  # fields of the outcome, once all steps are recorded
        self._patience_s = min(_PATIENCE_S, scenario.run.timeout_s / 2)
        start = multiprocessing.get_context("spawn")
        self._connection, other = start.Pipe()
        place = RankPlace(rank.rank, rank.host, rank.world_size, rank.local_world_size)
        self._meeting, address, port = _meeting_point(rank)
        self._store, self._over = dist.distributed_c10d._get_default_store(), f"script over {address}:{port}"
        owned = scratch()
        weakref.finalize(self, owned.remove)
        env = environment_of(script, rank, address=address, port=port, folder=owned.path)
        arguments = (other, place, scenario.run.steps, script, env)
        self._process = start.Process(target=main, args=arguments, daemon=True)
        self._process.start()
        # Only the child keeps that end, so that its death is seen here as the end of the stream.
        other.close()

    def run(self) -> None:
        """Relay until the script has ended on all ranks; a script that fails stays as long as this process."""
        while self._take(*self._next()):
            pass
        self._store.set(self._over, "")
        self._stands({"last": "its script's last line", "inside": False, "waits": []})
        received: list[Any] = [None] * dist.get_world_size()
        # Also a barrier: other ranks may still read from this rank's process, so it must not end before.
        dist.all_gather_object(received, self._outcome)
        end(self._process)
        check(dict(enumerate(received)), self._script)

    def _next(self) -> tuple[str, Any]:
        while not self._connection.poll(_ASKING_S):
            if self._journal.elsewhere is None:
                self._journal.moves += 1  # loading torch counts as progress
                continue
            if self._recorded is not None and self._is_left():
                return "end", self._recorded
            with suppress(OSError):  # the process has ended; `recv` below finds out
                self._connection.send("at")
        try:
            received: tuple[str, Any] = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(1)
            raise ProgramError(f"{self._name}: {describe_end(self._process.exitcode)}") from None
        return received

    def _is_left(self) -> bool:
        """Return whether the script waits for another rank's script, which has ended."""
        return time.monotonic() - self._moved_s > self._patience_s and self._store.check([self._over])

    def _take(self, kind: str, argument: Any) -> bool:
        """Handle one message; return whether more will come."""
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
        """Update the rank's position; each change counts as a move of this process, on top of the script's own."""
        journal = self._journal
        if at.get("moves") != self._moves:
            journal.moves, self._moves = journal.moves + 1, at.get("moves")
            self._moved_s = time.monotonic()
        journal.elsewhere = {**(journal.elsewhere or {}), **at, "moves": journal.moves}


def _meeting_point(rank: Rank) -> tuple[Store | None, str, int]:
    """Return the store that the first rank serves (None elsewhere), its address that all ranks reach, and its port.

    The script's ranks meet in that store, as torchrun's do in their agent's.
    """
    received: list[Any] = [None]
    store: TCPStore | None = None
    if rank.rank == 0:
        there = os.environ.get("MASTER_ADDR") or socket.gethostname()
        # Under the project's launcher MASTER_ADDR is the launcher's, which may be another host: take the address of the
        # interface that routes to it.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((there, 1))
            here = way.getsockname()[0]
        for address in (there, here):
            with suppress(OSError, RuntimeError):
                with socket.create_server((address, 0)):
                    pass  # the address is one of this host's
                store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
                received = [(address, store.port)]
                break
    dist.broadcast_object_list(received)
    if received[0] is None:
        raise ProgramError(f"rank {rank.rank}: the script's ranks find no address at which to meet")
    return store, str(received[0][0]), int(received[0][1])

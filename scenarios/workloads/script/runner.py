"""A script's rank as a process of its own, which sends one request at a time."""

from __future__ import annotations

import multiprocessing
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scenarios.config.scenario import Scenario
from scenarios.owned_folder import Owned, scratch
from scenarios.seam.errors import ProgramError, ScriptError
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.workloads.recording.events.notes import ScriptFailure
from scenarios.workloads.recording.events.waits import Sleep
from scenarios.workloads.recording.events.work import Turn
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import Seat, environment_of
from scenarios.workloads.script.forking import start_loading, without_main
from scenarios.workloads.script.gpu.cuda.properties import SeenGpu
from scenarios.workloads.script.outcome import describe_end
from scenarios.workloads.script.process.children import STANDS, allow_children, end, line_of
from scenarios.workloads.script.process.saved_files import remove_made
from scenarios.workloads.script.process.subprocess_player import main

# How long a process may take to report its current line, and the interval at which the report is checked.
_ANSWER_S, _LOOKING_S = 1.0, 0.005
# The interval of progress reports while a rank computes.
_LOOK_S = 0.25


class ProcessStart:
    """A starter of ranks' processes, with the folder and timeout that they share.

    Attributes:
        called_s: when any process last made a request that is no sleep.
        running: how many processes run; the last one's end removes directories that they made for checkpoints.
    """

    def __init__(self, scenario: Scenario, script: Script) -> None:
        self.called_s, self.running = 0.0, 0
        self.context = multiprocessing.get_context("forkserver")
        allow_children()  # workers of a study are daemons
        start_loading(scenario, script)

    @cached_property
    def folder(self) -> Path:
        """The folder for the processes' files: created at first access, removed with this object."""
        owned = scratch()
        weakref.finalize(self, _clean_up, owned)
        return owned.path


def _clean_up(owned: Owned) -> None:
    """Remove the folder; of interrupted processes also the directories that they made."""
    remove_made(owned.path)
    owned.remove()


class Doing:
    """A reporter of the script's progress to `program.does`."""

    def __init__(self, program: Program, scenario: Scenario) -> None:
        self._program, self._world_size, self._steps = program, scenario.cluster.world_size, scenario.run.steps
        self._said, self._begun = ("", ""), Counter[int]()  # how many ranks have begun each step

    def say(self, phase: str, words: str) -> None:
        """Report that a phase begins or continues."""
        self._said = phase, words
        self.go_on()

    def go_on(self) -> None:
        """Repeat the last report, to show that time passes."""
        self._program.does(*self._said)

    def begins(self, number: int) -> None:
        """Report step `number`, counted from 1, once all ranks have begun it."""
        self._begun[number] += 1
        if self._begun[number] == self._world_size:
            self.say("steps of the script", f"step {number} of {self._steps} of the script")


class LivePlayer:
    """A running process of one rank; `doing` reports progress while the process computes."""

    def __init__(
        self, start: ProcessStart, script: Script, rank: Rank | Seat, scenario: Scenario, doing: Doing | None = None
    ) -> None:
        self._start, self._simulated, self._rank = start, rank, f"rank {rank.rank}"
        self._look = (lambda: None) if doing is None else doing.go_on
        self._name = f"{self._rank}: {script.path}"
        self._timeout_s, start.called_s = scenario.run.timeout_s, time.monotonic()
        is_on_gpu = scenario.cluster.host.gpu.device.is_launched
        self._beside = "" if is_on_gpu else ", while only one rank runs at a time"
        self._connection: Connection
        self._connection, other = start.context.Pipe()
        self._stands = start.folder / f"rank-{rank.rank}-stands"
        env = environment_of(script, rank, address="localhost", port=29500, folder=start.folder)
        given = (other, script, env, start.folder, gpu_properties(scenario))
        self._process = start.context.Process(target=main, args=given, daemon=True)
        with without_main():
            self._process.start()
        start.running += 1
        # The child has the only other copy, so its death ends the connection.
        other.close()
        self.answer()

    def next(self) -> Turn:
        """Return the rank's work since its last request, and its next request.

        Raises:
            ProgramError: the process ended, or made no call for `run.timeout`.
            ScriptError: the script failed.
        """
        assert self._process.pid is not None, "it was started"
        starved_s = partial(_starved_s, self._process.pid)
        if not comes_in_time(self._connection, self._timeout_s, starved_s, self._look):
            raise self._late()
        try:
            found: Turn = self._connection.recv()
        except (EOFError, OSError):  # OSError if answers were still pending
            self._process.join(10)
            raise ProgramError(f"{self._name}: {describe_end(self._process.exitcode)}") from None
        if isinstance(found.request, ScriptFailure):
            raise ScriptError(f"{self._rank}: {found.request.sentence}")
        if not isinstance(found.request, Sleep):
            self._start.called_s = time.monotonic()
        elif time.monotonic() > self._start.called_s + self._timeout_s:  # all ranks do nothing but sleep
            raise self._late()
        return found

    def _late(self) -> ProgramError:
        return ProgramError(
            f"{self._name} made no call for {self._timeout_s:g} s (run.timeout){self._where()}: it computes,"
            " sleeps, or waits for other ranks by other means than a collective (a store or a file of its own,"
            f" say){self._beside}"
        )

    def _where(self) -> str:
        """Return where the script is, as ", in FILE:LINE"; "" if its process does not respond."""
        assert self._process.pid is not None, "it was started"
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, STANDS)
        until_s, line = time.monotonic() + _ANSWER_S, ""
        while not line and time.monotonic() < until_s:
            time.sleep(_LOOKING_S)
            line = line_of(self._stands)
        return line

    def answer(self, value: Any = None) -> None:
        """Send an answer with the simulated time of the rank's host, None for a rank that is only recorded."""
        now_ns = self._simulated.backend.now_ns if isinstance(self._simulated, Rank) else None
        with suppress(ConnectionError):  # `next` reports how the process ended
            self._connection.send((value, now_ns))

    def close(self) -> None:
        end(self._process)
        self._connection.close()
        self._start.running -= 1
        if not self._start.running:
            remove_made(self._start.folder)


def comes_in_time(
    connection: Connection, timeout_s: float, starved_s: Callable[[], float], look: Callable[[], None] = lambda: None
) -> bool:
    """Wait for data on a connection; return whether it arrives within `timeout_s`.

    Time in which the sender waits for a processor does not count, so a busy machine makes no script late.

    Args:
        connection: the connection to poll.
        timeout_s: the limit in seconds.
        starved_s: returns the sender's total wait for a processor so far, in seconds.
        look: called a few times a second.
    """
    if connection.poll():
        return True
    until_s = time.monotonic() + timeout_s - starved_s()
    while not connection.poll(min(max(until_s + starved_s() - time.monotonic(), 0), _LOOK_S)):
        look()
        if time.monotonic() >= until_s + starved_s():
            return False
    return True


def _starved_s(pid: int) -> float:
    """Return how many seconds a process's main thread has waited for a processor; 0 if the system does not say.

    The second number of Linux's schedstat is this time in ns (Documentation/scheduler/sched-stats.rst).
    """
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
    return 0.0


def gpu_properties(scenario: Scenario) -> SeenGpu | None:
    """Return the properties of the scenario's GPUs that a script can query; None on CPUs."""
    host = scenario.cluster.host
    if not host.gpu.device.is_launched:
        return None
    gpu = host.gpu
    return SeenGpu(
        count=host.gpus,
        name=gpu.name,
        memory_bytes=round(gpu.memory_bytes),
        l2_bytes=float(gpu.l2_bytes or 0),
        l2_total_bytes=round((gpu.l2_bytes or 0) * gpu.l2_partitions),
        capability=divmod(gpu.compute_capability, 10),
        multiprocessors=gpu.multiprocessors,
        has_values=scenario.run.payload == "values",
    )

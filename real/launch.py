"""Starts the ranks of a run on this machine, watches them, and ends all of them however the run ends."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from real.ending import keep_what_there_is, log_of, put_away
from real.job import Job
from real.place import JOB, PARENT, STORE_FD, TOKEN, WARDEN
from real.roll import Roll
from real.warden import Warden

LOOPBACK = "127.0.0.1"
_HEARING_S = 0.05
# A rank that was told to stop spools the rest and goes; one that does not is killed after this.
_GRACE_S = 1.0


class RunEnded(Exception):  # noqa: N818  (it is news, not an error of ours)
    """A run was over before its end: one sentence; `code` for the process's exit."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


def launch(job: Job, command: Sequence[str] = (sys.executable, "-m", "real")) -> None:
    """Play the job on as many processes as it has ranks, to the end; rank 0 writes the recording.

    `command` starts one rank: a program that calls `Station.serve` when it finds a job in its environment.

    Raises:
        RunEnded: a rank was lost, raised, stood still or never came, or somebody interrupted us. No process is left,
            and what was measured lies in `job.out`, marked incomplete.
    """
    began_s = time.monotonic()
    job.spool.mkdir(parents=True)
    job.save(job.spool / "job")
    sentence, code = _Launch(job, began_s).run(command)
    if sentence is None:
        put_away(job)
        return
    further = keep_what_there_is(job, sentence, began_s)
    raise RunEnded(sentence if further is None else f"{sentence}; {further}", code)


class _Launch:
    """The processes of one run."""

    def __init__(self, job: Job, began_s: float) -> None:
        self._job = job
        scenario = job.scenario
        self._size = scenario.cluster.world_size
        self._roll = Roll(self._size, scenario.timeout_s, began_s, sees_exits=True)
        self._token = secrets.token_hex(16)
        self._warden = Warden(LOOPBACK, self._roll, self._token)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None

    def run(self, command: Sequence[str]) -> tuple[str | None, int]:
        """Why the run was over before its end, if it was, and the exit code."""
        with self._taking_signals():
            try:
                self._start(command)
                return self._watch()
            finally:
                self._end_all()
                self._warden.close()

    def _start(self, command: Sequence[str]) -> None:
        with socket.create_server((LOOPBACK, 0), backlog=1024) as store:
            for rank in range(self._size):
                with log_of(self._job.spool, rank).open("wb") as log:
                    process = subprocess.Popen(
                        command,
                        env=self._environment(rank, store),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=[store.fileno()] if rank == 0 else [],
                        start_new_session=True,  # Ctrl-C is for us; we tell them
                    )
                self._processes.append(process)

    def _environment(self, rank: int, store: socket.socket) -> dict[str, str]:
        host, port = self._warden.address
        given = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(store.getsockname()[1]),
            STORE_FD: str(store.fileno()),
            WARDEN: f"{host}:{port}",
            TOKEN: self._token,
            JOB: str((self._job.spool / "job").absolute()),
            PARENT: str(os.getpid()),
        }
        return {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **os.environ, **given}

    def _watch(self) -> tuple[str | None, int]:
        while not self._roll.is_done:
            self._warden.hear(time.monotonic(), _HEARING_S)
            now_s = time.monotonic()
            for rank, process in enumerate(self._processes):
                if process.poll() is not None and self._roll.members[rank].exit_code is None:
                    self._roll.exited(rank, process.returncode, now_s)
            if self._signal is not None:
                name = signal.Signals(self._signal).name
                return f"the run was interrupted by {name}", 128 + self._signal
            sentence = self._roll.verdict(now_s)
            if sentence is not None:
                return sentence, 1
        return None, 0

    def _end_all(self) -> None:
        """Ask, wait a little, kill; with each rank goes whatever it has started."""
        self._warden.stop("the run is over")
        until_s = time.monotonic() + _GRACE_S
        while time.monotonic() < until_s and any(process.poll() is None for process in self._processes):
            self._warden.hear(time.monotonic(), _HEARING_S)
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextmanager
    def _taking_signals(self) -> Iterator[None]:
        def take(number: int, frame: object) -> None:
            self._signal = number

        before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def spool_folder(out: Path) -> Path:
    """Where the ranks of a run keep what they have measured: hidden, beside the run's folder to be."""
    return out.parent / f".{out.name}.{os.getpid()}.spool"

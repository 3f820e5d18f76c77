"""Starts the ranks of a run on this machine, watches them, and ends all of them however the run ends."""

from __future__ import annotations

import dataclasses
import glob
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from real.launch.forker import Forker
from real.launch.job import MEASURED, PROGRAM, WRITER, Check, Job
from real.launch.placement import JOB, STORE_FD, SUPERVISOR, TOKEN
from real.machine import allow_open_files
from real.supervise.rank_status import RankStatusTable
from real.supervise.recovery import write_incomplete_run, writer_of
from real.supervise.spool import JOB_FILE, lay_out, log_of, put_away
from real.supervise.supervisor import Supervisor
from scenarios.config.scenario import Scenario
from scenarios.interruption import hold_signals
from scenarios.seam.errors import ProgramError

LOOPBACK = "127.0.0.1"
_HEARING_S = 0.05
# A rank that was asked to stop spools the rest and exits; a rank that does not is killed after this time.
_GRACE_S = 1.0
# Variables of all ranks, unless the user's environment or the hosts have others.
_DEFAULTS = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


class RunEnded(Exception):  # noqa: N818  (an outcome, not a bug)
    """A run that ended early: one sentence; `code` is the exit code of the process."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


class Hosts:
    """The hosts of a run, all on this machine; here plain processes, which communicate over the loopback device."""

    kind = "this machine"  # the value of `RunInfo.played_on`
    control_address = LOOPBACK  # at which all ranks reach the launcher
    environment: ClassVar[Mapping[str, str]] = {}  # environment variables that every rank gets

    def control(self) -> AbstractContextManager[None]:
        """Enter the host of `control_address`: sockets and processes created inside the context belong to that host."""
        return nullcontext()

    def host(self, index: int) -> AbstractContextManager[None]:
        """Enter one host: processes started inside the context belong to that host."""
        return nullcontext()


def launch(
    job: Job,
    command: Sequence[str] | None = None,
    *,
    hosts: Hosts | None = None,
    heard: Callable[[int], None] | None = None,
) -> None:
    """Run the job on one process per rank, to the end; rank 0 writes the recording.

    Args:
        job: the run; see `Job`.
        command: starts one rank in place of a fork with torch loaded: a program that calls `RankWorker.serve` when it
            finds a job in its environment.
        hosts: where ranks run; None: on this machine, over its loopback device.
        heard: callback, called about every 50 ms with the foremost rank's step.

    Raises:
        RunEnded: a rank was lost, raised, stalled or never came, or the run was interrupted. No process is left, and
            the measurements lie in `job.out`, marked incomplete.
    """
    began_s = time.monotonic()
    hosts = hosts or Hosts()
    job = dataclasses.replace(job, played_on=hosts.kind)
    try:
        allow_open_files(job.scenario.cluster)
    except ProgramError as error:
        raise RunEnded(str(error), 2) from None
    with hold_signals() as signals:  # signals wait until all is written: a further Ctrl-C must not leave half a run
        job.spool.mkdir(parents=True)
        _refuse_rivals(job)
        job.save(job.spool / JOB_FILE)
        run = _Launch(job, began_s, hosts, heard, signals)
        sentence, code = run.run(command)
        if sentence is None:
            put_away(job)
            return
        if signals and not run.has_ended_a_step:
            put_away(job)
            raise RunEnded(f"{sentence} in step 0; nothing is kept of it", code)
        raise RunEnded(write_incomplete_run(job, sentence, time.monotonic() - began_s), code)


def _refuse_rivals(job: Job) -> None:
    """Raise RunEnded if another process is about to write the same folder."""
    for other in job.out.parent.glob(f".{glob.escape(job.out.name)}.*.spool"):
        if other != job.spool and (writer := writer_of(other)) is not None:
            shutil.rmtree(job.spool, ignore_errors=True)
            raise RunEnded(f"{job.out}: process {writer} is writing it; give another folder", 2)


class _Launch:
    """The processes of one run."""

    def __init__(
        self, job: Job, began_s: float, hosts: Hosts, heard: Callable[[int], None] | None, signals: Sequence[int]
    ) -> None:
        self._job, self._hosts, self._heard, self._signals = job, hosts, heard, signals
        scenario = job.scenario
        self._size = scenario.cluster.world_size
        self._table = RankStatusTable(self._size, scenario.run.timeout_s, began_s, sees_exits=True, start_s=job.start_s)
        self._steps = lay_out(job.spool, self._size)
        self._token = secrets.token_hex(16)
        with hosts.control():
            self._supervisor = Supervisor(hosts.control_address, self._table, self._token)

    @property
    def has_ended_a_step(self) -> bool:
        """Whether some rank has begun a step beyond the first, or ended the run."""
        return any(step for step in self._steps.of_all()) or self._table.is_done

    def run(self, command: Sequence[str] | None) -> tuple[str | None, int]:
        """Run all ranks to the end; return why the run ended early (None if it did not), and the exit code."""
        forker = Forker(command, {**_DEFAULTS, **os.environ, **self._hosts.environment})
        try:
            self._start(forker)
            return self._watch(forker)
        finally:
            self._end_all(forker)
            self._supervisor.close()

    def _start(self, forker: Forker) -> None:
        with self._hosts.control():
            store = socket.create_server((self._hosts.control_address, 0), backlog=1024)
        gpus = self._job.scenario.cluster.host.gpus
        with store:
            for rank in range(self._size):
                with log_of(self._job.spool, rank).open("wb") as log, self._hosts.host(rank // gpus):
                    # Rank 0 gets the listening socket itself: a port that is only reserved could be lost before rank 0
                    # binds it.
                    held = store.fileno() if rank == 0 else None
                    forker.start(self._variables(rank, store), log=log.fileno(), held=held)

    def _variables(self, rank: int, store: socket.socket) -> dict[str, str]:
        host, port = self._supervisor.address
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "MASTER_ADDR": self._hosts.control_address,
            "MASTER_PORT": str(store.getsockname()[1]),
            STORE_FD: str(store.fileno()),
            SUPERVISOR: f"{host}:{port}",
            TOKEN: self._token,
            JOB: str((self._job.spool / JOB_FILE).absolute()),
        }

    def _watch(self, forker: Forker) -> tuple[str | None, int]:
        while not self._table.is_done:
            self._supervisor.hear(time.monotonic(), _HEARING_S)
            now_s = time.monotonic()
            for rank, code in forker.exit_codes().items():
                if self._table.members[rank].exit_code is None:
                    self._table.note_exit(rank, code, now_s)
            # After exit codes: a rank that has ended writes no further step.
            self._table.see(self._steps.of_all(), now_s)
            if self._heard is not None:
                self._heard(max((member.step or 0 for member in self._table.members), default=0))
            if self._signals:
                name = signal.Signals(self._signals[0]).name
                return f"the run was interrupted by {name}", 128 + self._signals[0]
            sentence = self._table.verdict(now_s)
            if sentence is not None:
                return sentence, 1
        return None, 0

    def _end_all(self, forker: Forker) -> None:
        """Ask all ranks to stop, wait at most `_GRACE_S`, kill their process groups."""
        self._supervisor.stop("the run is over")
        until_s = time.monotonic() + _GRACE_S
        while time.monotonic() < until_s and not forker.all_have_ended:
            self._supervisor.hear(time.monotonic(), _HEARING_S)
        forker.end()


def job_of(
    scenario: Scenario,
    out: Path,
    *,
    program: str | None = None,
    arguments: tuple[Any, ...] = (),
    writer: str = WRITER,
    check: Check = "first",
    records: bool = True,
) -> Job:
    """Return the job of running a scenario with values on every rank and storing the run in the folder `out`."""
    return Job(
        scenario=scenario.with_run(payload="values", ranks="each"),
        program=program or MEASURED.get(scenario.program, PROGRAM),
        arguments=arguments,
        writer=writer,
        out=out,
        spool=spool_folder(out),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        check=check,
        records=records,
    )


def spool_folder(out: Path) -> Path:
    """Return the hidden folder next to `out` in which the ranks of a run keep their measurements."""
    return out.parent / f".{out.name}.{os.getpid()}.spool"

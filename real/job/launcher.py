"""Runs a job on this machine: starts an agent on each host, kills what is to be killed, and replaces lost hosts."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from collections.abc import Sequence

from real.emulate.fabric import control_address
from real.job import journal
from real.job.elastic import ADDRESS, AGENT, FILE, HOST, KEEP_ALIVE_S, KEEP_ALIVE_TRIES, ElasticJob
from real.job.kills import Kill
from real.launch.forker import Forker
from real.launch.launcher import LOOPBACK, Hosts, RunEnded
from real.launch.placement import ENTRY, STORE_FD
from real.machine import allow_open_files
from real.supervise.rank_status import START_S, ranks
from real.supervise.spool import lay_out
from scenarios.interruption import hold_signals
from scenarios.seam.errors import ProgramError

_LOOKS_EVERY_S = 0.005  # at which kills are due, or steps are looked for
_STORE = -1  # in the place of a host's number
_DEFAULTS = {
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    # Otherwise agents wait for the store of a host that may be lost; ranks have no need of it.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    # torch's own format loads torch._dynamo when an agent logs its first failure, and detection would wait for it.
    "TORCH_LOGS_FORMAT": "basic",
    ENTRY: AGENT,
}


def run(job: ElasticJob, kills: Sequence[Kill], hosts: Hosts) -> list[Kill]:
    """Run the job to its end; its journal lies in its folder, however it ends.

    Returns:
        The kills that the job's end has forestalled.

    Raises:
        RunEnded: an agent failed, ranks stalled, or the run was interrupted; no process is left.
    """
    try:
        allow_open_files(job.scenario.cluster)
    except ProgramError as error:
        raise RunEnded(str(error), 2) from None
    with hold_signals() as signals:
        job.folder.mkdir(parents=True, exist_ok=True)
        return _JobLaunch(job, kills, hosts, signals).run()


class _JobLaunch:
    """The processes of one job."""

    def __init__(self, job: ElasticJob, kills: Sequence[Kill], hosts: Hosts, signals: Sequence[int]) -> None:
        self._kills, self._hosts, self._signals = list(kills), hosts, signals
        cluster = job.scenario.cluster
        self._size, self._count, self._gpus = cluster.world_size, cluster.hosts, cluster.host.gpus
        self._steps = lay_out(job.folder, self._size)
        self._notes = journal.JobJournal(job.folder, "launcher")
        with hosts.control():
            self._store = socket.create_server((hosts.control_address, 0), backlog=1024)
        self._job = dataclasses.replace(job, endpoint=f"{hosts.control_address}:{self._store.getsockname()[1]}")
        self._file = self._job.save().absolute()
        self._forked: list[int] = []  # the host of each process that was forked, in order
        self._lost: set[int] = set()  # processes that were killed
        self._began_s: float | None = None
        self._moved_s = time.monotonic()
        self._seen: tuple[int, list[int | None]] = (0, [])

    def run(self) -> list[Kill]:
        """Start everything, watch it to the end, and leave no process; return the kills that were not due."""
        forker = Forker(None, {**_DEFAULTS, **os.environ, **self._hosts.environment})
        try:
            with self._store:
                self._start(forker, _STORE)
            for host in range(self._count):
                self._start(forker, host)
            self._notes.note("begun")
            self._watch(forker)
            self._notes.note("over")
            return self._kills
        except RunEnded as ended:
            self._notes.note("ended early", why=str(ended))
            raise
        finally:
            forker.end()

    def _start(self, forker: Forker, host: int) -> None:
        name = "store" if host == _STORE else f"host-{host}"
        variables = {FILE: str(self._file)}
        if host == _STORE:
            variables[STORE_FD] = str(self._store.fileno())
        else:
            variables |= {HOST: str(host), ADDRESS: self._address(host)}
        inside = self._hosts.control() if host == _STORE else self._hosts.host(host)
        with (self._job.folder / f"{name}.log").open("ab") as log, inside:
            forker.start(variables, log=log.fileno(), held=self._store.fileno() if host == _STORE else None)
        self._forked.append(host)

    def _address(self, host: int) -> str:
        # Addresses of their own on one machine, too: rendezvous orders hosts by address.
        is_here = self._hosts.control_address == LOOPBACK
        return f"127.0.0.{host + 1}" if is_here else str(control_address(host))

    def _watch(self, forker: Forker) -> None:
        done: set[int] = set()
        while len(done) < self._count:
            time.sleep(_LOOKS_EVERY_S)
            for number, code in list(forker.exit_codes().items()):
                host = self._forked[number]
                if number in self._lost:
                    self._lost.discard(number)
                    self._forked[number] = _STORE
                    self._notes.note("replaced", host=host)
                    self._start(forker, host)
                elif host != _STORE and code == 0:
                    done.add(host)
                elif host != _STORE or number == 0:
                    raise RunEnded(self._why_ended(host, code))
            self._kill_due()
            self._check()

    def _kill_due(self) -> None:
        at = self._steps.of_all()
        if self._began_s is None:
            if any(step is None for step in at):
                return
            self._began_s = time.monotonic()
        for kill in list(self._kills):
            is_due = (
                time.monotonic() - self._began_s >= kill.at_s
                if kill.at_s is not None
                else max(step or 0 for step in at) >= (kill.step or 0)
            )
            if is_due and self._kill(kill):
                self._kills.remove(kill)

    def _kill(self, kill: Kill) -> bool:
        """Kill a rank or a host; return False if it is not there, as while it restarts."""
        what = "started" if kill.what == "rank" else "up"
        of = [event for event in journal.read(self._job.folder, f"{kill.what}-{kill.number}") if event["what"] == what]
        if not of:
            return False
        pid = of[-1]["pid"]
        try:
            os.kill(pid, 0)
            self._notes.note("kill", target=f"{kill.what}{kill.number}", kind=kill.name, kill=str(kill))
            if kill.what == "rank":
                os.kill(pid, signal.SIGKILL)
                return True
            self._lost.add(len(self._forked) - 1 - self._forked[::-1].index(kill.number))
            # The agent's process group holds its ranks, too.
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _check(self) -> None:
        """Raise RunEnded if a signal has come, or nothing has moved for too long."""
        if self._signals:
            name = signal.Signals(self._signals[0]).name
            raise RunEnded(f"the job was interrupted by {name}; its journal is kept", 128 + self._signals[0])
        now_s, folder = time.monotonic(), self._job.folder / "journal"
        size = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
        if (seen := (size, self._steps.of_all())) != self._seen:
            self._seen, self._moved_s = seen, now_s
        within_s = self._job.scenario.run.timeout_s + KEEP_ALIVE_S * (KEEP_ALIVE_TRIES + 1)
        if self._began_s is None:
            within_s = max(within_s, START_S)
        if now_s - self._moved_s > within_s:
            raise RunEnded(self._who_stands(within_s))

    def _who_stands(self, within_s: float) -> str:
        """Name the ranks that have done least."""
        last: dict[int, int] = {}
        for rank in range(self._size):
            of = journal.read(self._job.folder, f"rank-{rank}")
            last[rank] = of[-1]["ns"] if of else 0
        least = min(last.values())
        late = [rank for rank, ns in last.items() if ns == least]
        events = journal.read(self._job.folder, f"rank-{late[0]}")
        after = f"after '{events[-1]['what']}'" if events else "before it came"
        return f"{ranks(late)} did not move for {within_s:g} s, {after}"

    def _why_ended(self, host: int, code: int) -> str:
        log = self._job.folder / ("store.log" if host == _STORE else f"host-{host}.log")
        lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
        failed = [event for event in journal.read(self._job.folder, "rank-*") if event["what"] == "failed"]
        words = failed[0]["error"] if failed else lines[-1] if lines else f"exit code {code}"
        return f"host {host} gave up: {words}; {log} has more"

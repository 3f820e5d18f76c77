"""Connects a rank to its run: the store for torch.distributed, and the address of the run's supervisor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from real.launch.job import Job
from real.launch.placement import STORE_FD, SUPERVISOR, TOKEN, Place
from real.supervise.rank_status import RankStatusTable
from real.supervise.recovery import write_what_is_left
from real.supervise.spool import JOB_FILE, lay_out
from real.supervise.supervisor import Supervisor
from scenarios.seam.errors import RankLostError, ScenarioError

_HEARING_S = 0.05


class Rank0Supervisor:
    """A supervisor on rank 0 that listens at the address at which all ranks reach rank 0; starts its thread at once."""

    def __init__(self, job: Job, address: str, began_s: float) -> None:
        self._job, self._began_s = job, began_s
        self.token = secrets.token_hex(16)
        scenario = job.scenario
        self._table = RankStatusTable(
            scenario.cluster.world_size, scenario.run.timeout_s, began_s, sees_exits=False, start_s=job.start_s
        )
        self._supervisor = Supervisor(address, self._table, self.token)
        job.spool.mkdir(parents=True, exist_ok=True)
        job.save(job.spool / JOB_FILE)
        self._steps = lay_out(job.spool, scenario.cluster.world_size)
        self._all_done = threading.Event()
        threading.Thread(target=self._watch, name="rank 0 supervisor", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to which control channels connect."""
        return self._supervisor.address

    def wait_for_all(self) -> None:
        """Wait until every rank has reported that it is done; a run that ends early ends the process instead."""
        self._all_done.wait()

    def _watch(self) -> None:
        while not self._table.is_done:
            self._supervisor.hear(time.monotonic(), _HEARING_S)
            self._table.see(self._steps.of_all(), time.monotonic())
            sentence = self._table.verdict(time.monotonic())
            if sentence is not None:
                self._end(sentence)
        self._all_done.set()

    def _end(self, sentence: str) -> None:
        self._supervisor.stop(sentence)
        write_what_is_left(self._job, sentence, self._began_s)
        # The main thread may stand in a collective that never returns, so that no exception could end it.
        os._exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRendezvous:
    """The addresses that a rank needs to join a run: the store, and the supervisor's `host` and `port`.

    Attributes:
        token: the supervisor's secret.
        boot_id: identifies the supervisor's machine (see `boot_id`).
        out, spool, started: as in the `Job` of the whole run.
    """

    store: Store
    host: str
    port: int
    token: str
    boot_id: str
    out: Path = Path()
    spool: Path = Path()
    started: str = ""


def join_launcher(place: Place, start_s: float) -> RunRendezvous:
    """Join a run of the project's launcher, from the environment; rank 0 serves the store on the inherited socket."""
    host, _, port = os.environ[SUPERVISOR].rpartition(":")
    descriptor = int(os.environ[STORE_FD]) if place.rank == 0 else None
    return RunRendezvous(
        store=_store(place, start_s, descriptor),
        host=host,
        port=int(port),
        token=os.environ[TOKEN],
        boot_id=boot_id(),
    )


def join_rank0(place: Place, job: Job, bring_up: Callable[[str], Rank0Supervisor]) -> RunRendezvous:
    """Join a run of torchrun or srun: rank 0 serves the store (unless torchrun does) and announces a supervisor.

    `bring_up` starts the supervisor at an address.

    Raises:
        RankLostError: rank 0 did not come in time.
        ScenarioError: rank 0 cannot listen at its address.
    """
    # Loopback and other interfaces are told apart by number, not by name.
    address = socket.gethostbyname(place.address)
    if address.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: no other machine needs to reach this one
    serves = place.rank == 0 and not place.has_agent_store
    # Opened here and not by torch, whose error for a port in use names neither port nor remedy.
    listener = _listener(address, place.port) if serves else None
    try:
        store = _store(place, job.start_s, listener.detach() if listener else None)
        if place.rank == 0:
            supervisor = bring_up(address)
            host, port = supervisor.address
            announced = {
                "host": host,
                "port": port,
                "token": supervisor.token,
                "boot_id": boot_id(),
                "started": job.started,
            }
            folders = {"out": str(job.out.absolute()), "spool": str(job.spool.absolute())}
            store.set("run", json.dumps({**announced, **folders}))
        announced = json.loads(store.get("run"))
    except (RuntimeError, TimeoutError) as error:
        raise RankLostError(f"rank 0 did not come within {job.start_s:g} s") from error
    out, spool = Path(announced.pop("out")), Path(announced.pop("spool"))
    return RunRendezvous(store=store, out=out, spool=spool, **announced)


def _listener(address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port), backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ScenarioError(
            f"rank 0 cannot listen at {address}:{port}: {reason}; expected a free MASTER_PORT"
        ) from error


def boot_id() -> str:
    """Return an id of this machine since its boot; processes with equal ids share a clock. Unique where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Unique, so that ranks on such machines never count as sharing a clock.
        return secrets.token_hex(16)


def _store(place: Place, timeout_s: float, descriptor: int | None) -> Store:
    store = dist.TCPStore(  # type: ignore[attr-defined]
        place.address,
        place.port,
        is_master=descriptor is not None,
        # Ranks that never come are the supervisor's to report, by name; the store would only time out.
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=descriptor,
    )
    # torchrun's store outlives a restart of the ranks: each attempt has keys of its own.
    return dist.PrefixStore(f"twinstep/{place.attempt}", store)  # type: ignore[attr-defined]

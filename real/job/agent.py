"""An agent of a host: torch's elastic agent, as torchrun starts it, which forks the host's ranks and restarts them."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from real.job.elastic import ADDRESS, FILE, HOST, KEEP_ALIVE_S, KEEP_ALIVE_TRIES, MONITOR_S, load
from real.job.journal import JobJournal
from real.job.rank import be_rank
from real.launch.placement import STORE_FD
from real.libraries import library_of


def main() -> NoReturn:
    """Be the agent of one host, or the store in which agents meet; exit with 0 when all ranks have ended."""
    # A forked process: `sys.exit` would return into the forker.
    os._exit(_run(_serve_store if HOST not in os.environ else _be_agent))


def _run(work: Callable[[], None]) -> int:
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _serve_store() -> None:
    """Serve the store until the process is killed."""
    descriptor = int(os.environ[STORE_FD])
    with socket.socket(fileno=os.dup(descriptor)) as listener:
        host, port = listener.getsockname()[:2]
    timeout = timedelta(seconds=60)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=descriptor
    )
    while store is not None:
        signal.pause()


def _be_agent() -> None:
    path, host, address = os.environ[FILE], int(os.environ[HOST]), os.environ[ADDRESS]
    job = load(Path(path))
    library_of(job.scenario.run.library)
    job.program(1)  # both load its modules, which each rank would otherwise load for itself after its fork
    journal = JobJournal(job.folder, f"host-{host}")
    journal.note("up", pid=os.getpid())
    # This function names the caller in events that nobody reads, and searches all modules for that: 0.1 s of a core,
    # several times in each exchange with the store. Hosts of a busy machine then miss their heartbeats and never meet.
    vars(dynamic_rendezvous)["get_method_name"] = lambda depth=2: ""
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=job.endpoint,
        run_id="job",
        min_nodes=job.scenario.cluster.hosts,
        max_nodes=job.scenario.cluster.hosts,
        local_addr=address,
        is_host=False,
        keep_alive_interval=KEEP_ALIVE_S,
        keep_alive_max_attempt=KEEP_ALIVE_TRIES,
    )
    spec = WorkerSpec(
        role="rank",
        local_world_size=job.scenario.cluster.host.gpus,
        entrypoint=be_rank,
        args=(path,),
        rdzv_handler=get_rendezvous_handler(parameters),
        max_restarts=job.restarts,
        monitor_interval=MONITOR_S,
        local_addr=address,
    )
    logs = job.folder / "logs" / f"host-{host}"
    logs.mkdir(parents=True, exist_ok=True)
    result = _Agent(spec, journal, DefaultLogsSpecs(log_dir=str(logs))).run()
    if result.is_failed():
        ranks = ", ".join(f"rank {rank}" for rank in sorted(result.failures))
        raise RuntimeError(f"{ranks} failed, and no restart is left")
    journal.note("down")


class _Agent(LocalElasticAgent):
    """A torch elastic agent that also writes its actions to the journal."""

    def __init__(self, spec: WorkerSpec, journal: JobJournal, logs: DefaultLogsSpecs) -> None:
        super().__init__(spec, logs, start_method="fork")
        self._journal = journal

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        why = "a rank has failed" if worker_group.state == WorkerState.FAILED else "hosts wait to join"
        self._journal.note("noticed", why=why)
        super()._restart_workers(worker_group)

    def _rendezvous(self, worker_group: WorkerGroup) -> Any:
        result = super()._rendezvous(worker_group)
        handler: Any = worker_group.spec.rdzv_handler
        # Restarts are counted by each agent for itself; rounds of the rendezvous are known to all.
        attempt = handler._state_holder.state.round
        os.environ["TWINSTEP_ATTEMPT"] = str(attempt)  # which the ranks inherit
        self._journal.note("formed", attempt=attempt, group_rank=worker_group.group_rank)
        return result

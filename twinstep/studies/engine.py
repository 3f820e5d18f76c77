"""Calls a function on many arguments on Dask workers: processes of this machine, of a scheduler, or jobs of Slurm."""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import dask
from distributed import Client, Future, KilledWorker, LocalCluster

from scenarios.interruption import Interrupted, hold_signals
from scenarios.seam.errors import ScenarioError

T = TypeVar("T")
R = TypeVar("R")

DEATHS = 3  # number of workers that may die of a point before it is given up
PRELOAD = "twinstep.studies.worker"
_TICK_S = 0.25
_LOOK_S = 2.0  # interval at which the number of workers is read
_WAIT_S = 60.0  # for the first worker of an existing cluster
_CONFIG = {
    "distributed.scheduler.allowed-failures": DEATHS - 1,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.worker.daemon": True,
    # A busy machine answers late: neither give its workers up nor warn.
    **dict.fromkeys(("distributed.comm.timeouts.connect", "distributed.comm.timeouts.tcp"), "300s"),
    "distributed.scheduler.worker-ttl": "10 minutes",
    "distributed.admin.tick.limit": "1h",
}

_NO_DASHBOARD = {"dashboard": False, "dashboard_address": ":0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A choice of workers: `jobs` processes of this machine, or jobs of Slurm, or a scheduler's workers.

    `scheduler` is an address such as tcp://host:8786, or a scheduler's file.
    """

    jobs: int
    scheduler: str = ""
    slurm: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Died:
    """The outcome of a call that `DEATHS` workers died of."""

    sentence: str


@dataclass(frozen=True, slots=True)
class WorkItem(Generic[T]):
    """An argument of the function, and the key of its result."""

    argument: object
    of: T


@contextmanager
def workers(where: Where) -> Iterator[Client]:
    """Yield a client of workers, which end with the context if they were started for it.

    Raises:
        ScenarioError: there is no such scheduler or no worker, or Slurm refuses the options.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_CONFIG))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Port 8787")  # another user's scheduler may have it
        # Inside the configuration: Dask reads its settings when schedulers and workers are made.
        client = stack.enter_context(_client(where, stack))
        if where.scheduler:
            _check(client, where.scheduler)
        yield client


def _client(where: Where, stack: ExitStack) -> Client:
    if where.scheduler:
        return _client_of(where.scheduler)
    if where.slurm is not None:
        return Client(stack.enter_context(_slurm(where.slurm, where.jobs)))
    with hold_signals() as signals:
        # Interrupted while it begins, a cluster could not be closed. One thread per process, because a worker runs one
        # point at a time (see `play`).
        cluster = LocalCluster(
            n_workers=where.jobs,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            preload=[PRELOAD],
        )
        stack.enter_context(cluster)
    if signals:
        raise Interrupted(signals[0])
    return Client(cluster)


def _client_of(scheduler: str) -> Client:
    try:
        if Path(scheduler).is_file():
            return Client(scheduler_file=scheduler, timeout=f"{_WAIT_S:.0f}s")
        return Client(scheduler, timeout=f"{_WAIT_S:.0f}s")
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise ScenarioError(
            f"--scheduler = {scheduler!r}: expected a Dask scheduler's address, such as tcp://host:8786, or its file:"
            f" {reason}"
        ) from None


def _check(client: Client, scheduler: str) -> None:
    """Check that a running cluster has a worker, and that all workers have this release of the project."""
    from scenarios.versions import version_of

    try:
        client.wait_for_workers(1, timeout=_WAIT_S)
        client.run(_load)
        releases = set(client.run(version_of, "twinstep").values())
    except TimeoutError:
        raise ScenarioError(f"--scheduler = {scheduler!r}: expected workers; none came in {_WAIT_S:.0f} s") from None
    except ImportError as error:
        raise ScenarioError(f"--scheduler = {scheduler!r}: expected workers that have twinstep: {error}") from None
    if releases != {version_of("twinstep")}:
        raise ScenarioError(
            f"--scheduler = {scheduler!r}: expected workers with twinstep {version_of('twinstep')}, found"
            f" {', '.join(sorted(releases))}"
        )


def _load() -> None:
    import twinstep.studies.play  # noqa: F401


def _slurm(options: Mapping[str, Any], jobs: int) -> Any:
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        slurm_cluster = import_module("dask_jobqueue").SLURMCluster
    except ImportError:
        raise ScenarioError(
            "--slurm: expected dask-jobqueue to be installed: python -m pip install 'twinstep[slurm]'"
        ) from None
    finally:
        signal.signal(signal.SIGINT, interrupted)  # importing dask_jobqueue replaces the handler
    settings = {"cores": 1, "processes": 1, "memory": "4 GiB", "scheduler_options": _NO_DASHBOARD, **options}
    try:
        cluster = slurm_cluster(**settings, worker_extra_args=["--preload", PRELOAD], silence_logs=logging.CRITICAL)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"--slurm: expected options of dask_jobqueue.SLURMCluster: {error}") from None
    try:
        _check_job(cluster.job_script())
    except ScenarioError:
        cluster.close()
        raise
    cluster.scale(jobs=jobs)
    return cluster


def _check_job(script: str) -> None:
    """Have Slurm check a worker's job: dask-jobqueue submits a refused one again and again, and never says so."""
    try:
        checked = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ScenarioError("--slurm: expected Slurm's sbatch on this machine; there is none in PATH") from None
    if checked.returncode:
        raise ScenarioError(f"--slurm: expected options of a job that Slurm takes: {checked.stderr.strip()}")


def play_all(
    client: Client, function: Callable[[Any], R], calls: Iterator[WorkItem[T]], tick: Callable[[int], None]
) -> Iterator[tuple[T, R | Died]]:
    """Call the function on each argument, one call per worker at a time, and yield results as they come.

    Args:
        client: of the workers.
        function: must be picklable.
        calls: read only when a worker is free, so that it may be long; a call whose worker dies is repeated.
        tick: called several times a second with the number of workers.
    """
    ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    under_way: dict[Any, T] = {}
    room = _Room(client)
    more = True
    while more or under_way:
        tick(room.workers)
        while more and len(under_way) < room.calls_wanted():
            call = next(calls, None)
            if call is None:
                more = False
                break
            # Not pure: Dask would answer a pure call from its cache, by its arguments.
            future = client.submit(function, call.argument, pure=False)
            under_way[future.key] = call.of
            future.add_done_callback(ended.put)
        if not under_way:
            continue
        # With a time-out, so that the line of progress moves, and calls begin on workers that came meanwhile.
        with suppress(queue.Empty):
            future = ended.get(timeout=_TICK_S)
            outcome: R | Died = _outcome(future)
            yield under_way.pop(future.key), outcome


class _Room:
    """A limit on calls in flight: one for each worker, and at least one, which waits for a first worker."""

    def __init__(self, client: Client) -> None:
        self._client, self._looked_s = client, 0.0
        self.workers = 0

    def calls_wanted(self) -> int:
        """Return how many calls to keep in flight: one per live worker, at least one; deaths are noticed within 2 s."""
        if time.monotonic() - self._looked_s > _LOOK_S:
            self.workers = len(self._client.nthreads())
            self._looked_s = time.monotonic()
        return max(self.workers, 1)


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result()
    except KilledWorker as killed:
        return Died(
            f"expected a worker to play it to its end, but {DEATHS} workers died of it, the last one at"
            f" {killed.last_worker.address}; the system ends processes for which there is not enough memory"
        )
    finally:
        # Dask keeps a result as long as any future of it lives.
        future.release()

"""The engine on real Dask workers, which are killed on the way; what they play needs no time."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import dask
import pytest
from distributed import Client

from scenarios.seam.errors import ScenarioError
from tests.real.pool import PRELOADED
from tests.twinstep.studies.players import count, kill, killed_at_first
from twinstep.studies import engine
from twinstep.studies.engine import Died, Where, WorkItem, play_all, workers

pytestmark = pytest.mark.whole
# Not imported here: that replaces what Ctrl-C does in this process.
needs_jobqueue = pytest.mark.skipif(find_spec("dask_jobqueue") is None, reason="needs dask-jobqueue")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, forked by the server that this process's ranks have, as each start of Python loads Dask anew."""
    get_context("forkserver").set_forkserver_preload([*PRELOADED, "distributed"])
    ensure_running()  # before Dask names modules of its own
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
    ):
        patch.setattr(engine, "PRELOAD", "signal")  # torch is not wanted here
        with workers(Where(jobs=2)) as client:
            yield client


def test_a_worker_that_dies_is_replaced_and_its_call_made_again(client: Client, tmp_path: Path) -> None:
    calls = [WorkItem(str(tmp_path / f"{number}"), number) for number in range(12)]
    seen: list[int] = []
    found = dict(play_all(client, killed_at_first, iter(calls[:2]), seen.append))
    assert found == {0: "whole", 1: "whole"}
    assert dict(play_all(client, count, iter(calls[2:]), seen.append)) == dict.fromkeys(range(2, 12), 1)


def test_a_call_of_which_workers_die_ends_and_says_so(client: Client, tmp_path: Path) -> None:
    calls = [WorkItem(str(tmp_path / "bad"), "bad")]
    ((name, died),) = play_all(client, kill, iter(calls), lambda workers: None)
    assert name == "bad"
    assert isinstance(died, Died)
    assert died.sentence.startswith(
        "expected a worker to play it to its end, but 3 workers died of it, the last one at"
    )
    assert (tmp_path / "bad").stat().st_size == engine.DEATHS
    assert dict(play_all(client, count, iter([WorkItem(str(tmp_path / "good"), 1)]), lambda workers: None)) == {1: 1}


def test_ctrl_c_while_workers_start_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def interrupted(**options: object) -> nullcontext[None]:
        signal.raise_signal(signal.SIGINT)
        found.append("started")
        return nullcontext(found.append("entered"))

    monkeypatch.setattr(engine, "LocalCluster", interrupted)
    with pytest.raises(KeyboardInterrupt), workers(Where(jobs=2)):
        found.append("used")
    assert found == ["started", "entered"]


def test_workers_of_a_scheduler_that_is_there_are_used(client: Client, tmp_path: Path) -> None:
    assert client.scheduler is not None
    address = str(client.scheduler.address)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_load", os.getpid)
        with workers(Where(jobs=1, scheduler=address)) as other:
            assert dict(play_all(other, count, iter([WorkItem(str(tmp_path / "one"), 1)]), print)) == {1: 1}


def test_wrong_scheduler_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_WAIT_S", 1.0)
    with (
        pytest.raises(ScenarioError, match=r"^--scheduler = 'tcp://127.0.0.1:9': expected a Dask scheduler's address"),
        workers(Where(jobs=1, scheduler="tcp://127.0.0.1:9")),
    ):
        pass


@needs_jobqueue
@pytest.mark.filterwarnings("ignore")  # of the half-made cluster
def test_options_that_slurms_jobs_do_not_have_are_a_sentence() -> None:
    with (
        pytest.raises(ScenarioError, match=r"^--slurm: expected options of dask_jobqueue.SLURMCluster: "),
        workers(Where(jobs=1, slurm={"queu": "gpu"})),
    ):
        pass
    gc.collect()  # else a later test has the warning of its socket


@needs_jobqueue
@pytest.mark.parametrize(
    ("sbatch", "sentence"),
    [
        ("", "--slurm: expected Slurm's sbatch on this machine; there is none in PATH"),
        ("echo 'invalid partition: cpu' >&2; exit 1", "--slurm: expected options .*: invalid partition: cpu"),
    ],
)
def test_a_job_that_slurm_cannot_take_is_a_sentence(
    sbatch: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sbatch:
        (script := tmp_path / "sbatch").write_text(f"#!/bin/bash\n{sbatch}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if sbatch else str(tmp_path))
    with (
        pytest.raises(ScenarioError, match=f"^{sentence}$"),
        workers(Where(jobs=1, slurm={"queue": "cpu", "interface": "lo"})),
    ):
        pass


@needs_jobqueue
@pytest.mark.timeout(90)
def test_jobs_of_slurm_are_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = f"{tmp_path}/job.sh"
    submit = f'cp "$1" {job}; setsid bash {job} > {job}.log 2>&1 & echo "Submitted batch job $!"'
    submit = f'[ "$1" = --test-only ] && exit\n{submit}'
    for name, line in (("sbatch", submit), ("scancel", 'kill -- "-$1"')):
        script = tmp_path / name
        script.write_text(f"#!/bin/bash\n{line}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(engine, "PRELOAD", "signal")
    slurm = {"queue": "cpu", "memory": "1 GiB", "log_directory": str(tmp_path), "interface": "lo"}
    with workers(Where(jobs=1, slurm=slurm)) as client:
        found = dict(play_all(client, count, iter([WorkItem(str(tmp_path / "one"), 1)]), lambda workers: None))
    assert found == {1: 1}
    assert "#SBATCH -p cpu" in (tmp_path / "job.sh").read_text()

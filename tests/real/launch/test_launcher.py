"""However a run of real ranks ends: all processes are gone, one sentence says why, and what was measured is kept."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from real.launch import worker
from real.launch.job import Check, Job
from real.launch.launcher import RunEnded, launch, spool_folder
from real.supervise import recovery, spool
from real.supervise.recovery import find_left_behind
from reports.store import run_folder as store
from tests.commands import command as command_of
from tests.contract.worlds import scenario
from tests.real import warm_forkers
from tests.real.programs import MANY_STEPS

ROOT = Path(__file__).parents[3]
SCENARIO = ROOT / "tests" / "data" / "real_world.toml"
# What a loaded machine may take to start ranks that import torch.
START_S = 60.0
# A rank that does not import anything: it says hello if it is told to, and then does nothing.
IDLER = """
import json, os, socket, sys, time
if os.environ["RANK"] in sys.argv[1:]:
    host, port = os.environ["TWINSTEP_SUPERVISOR"].split(":")
    line = socket.create_connection((host, int(port)))
    hello = {"hello": int(os.environ["RANK"]), "token": os.environ["TWINSTEP_TOKEN"]}
    line.sendall(json.dumps(hello).encode() + b"\\n")
time.sleep(1000)
"""


def job(
    out: Path,
    program: str,
    *,
    ranks: int = 2,
    timeout_s: float = START_S,
    start_s: float = START_S,
    check: Check = "first",
) -> Job:
    made = scenario(1, ranks, name="launched", timeout_s=timeout_s)
    return Job(
        scenario=made,
        program=f"tests.real.programs:{program}",
        writer="reports.writer:write",
        out=out,
        spool=spool_folder(out),
        started="2026-01-01T00:00:00+00:00",
        check=check,
        start_s=start_s,
    )


def end(job: Job, command: Sequence[str] | None = None) -> str:
    """The sentence of a run that is over before its end; nothing of it is left but its folder."""
    warm_forkers.server()
    others = set(psutil.Process().children(recursive=True))  # of other tests
    with pytest.raises(RunEnded) as caught:
        launch(job, command)
    assert caught.value.code == 1
    assert set(psutil.Process().children(recursive=True)) <= others
    assert not job.spool.exists()
    info = store.load(job.out).info
    assert (info.complete, info.error, info.world) == (False, str(caught.value), "real")
    assert info.played_on == "this machine"
    return str(caught.value)


def steps_kept(out: Path) -> list[tuple[int, int]]:
    spans = store.load(out).spans
    own = spans[spans["kind"] == "step"]
    return sorted(zip(own["rank"].tolist(), own["step"].tolist(), strict=True))


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_ranks_end_with_the_process_that_forked_them(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "loses_the_forker")
    assert end(given) == "rank 0 was killed by SIGKILL in step 2"
    assert steps_kept(given.out) == [(rank, step) for rank in range(2) for step in range(2)]


def test_a_killed_rank_is_named_with_its_step_and_leaves_all_before_however_short_they_are(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "is_killed_in_a_hurry")
    assert end(given) == f"rank 1 was killed by SIGKILL in step {MANY_STEPS}"
    assert steps_kept(given.out) == [(rank, step) for rank in range(2) for step in range(MANY_STEPS)]
    metrics = store.load(given.out).metrics
    assert metrics[metrics["rank"] == 1]["value"].tolist() == [float(step) for step in range(MANY_STEPS)]


def test_a_rank_that_raises_is_named_and_its_traceback_is_kept(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "raises")
    assert re.fullmatch(r"rank 1 raised ValueError in step 2: no such luck \(at \S+\.py:\d+\)", end(given))
    assert "Traceback (most recent call last)" in (given.out / "rank-1.log").read_text()
    assert (1, 1) in steps_kept(given.out)


def test_a_rank_whose_call_is_refused_says_so_in_one_sentence(tmp_path: Path) -> None:
    """Whether it is that rank that is heard first or one that was told."""
    given = job(tmp_path / "run", "gives_a_tuple", check="always")
    assert end(given) == "rank 1: all_to_all: input_tensor_list must be a list of tensors, got tuple"
    assert "TypeError" in (given.out / "rank-1.log").read_text()


def test_a_rank_that_does_not_make_a_group_is_named_with_where_it_stands(tmp_path: Path) -> None:
    assert end(job(tmp_path / "run", "makes_a_group", timeout_s=5.0)) == (
        "rank 1 did not reach new_group [1, 0] on stream main (call 0 of group set-ups) within 5 s;"
        " it stands in compute 'sleep' on stream main"
    )


@pytest.mark.parametrize("check", ["first", pytest.param("always", marks=pytest.mark.slow)])
def test_a_rank_that_stalls_is_named_with_where_it_stands(tmp_path: Path, check: Check) -> None:
    """While the others wait for its data, or for what it is about to call."""
    given = job(tmp_path / "run", "stalls", timeout_s=5.0, check=check)
    assert end(given) == (
        "rank 1 did not reach all_reduce 'gradients' on stream main in step 2 (call 2 of group world) within 5 s;"
        " it stands in compute 'sleep' on stream main in step 2"
    )


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "trains", ranks=3, start_s=2.0)
    assert end(given, (sys.executable, "-c", IDLER, "0", "2")) == "rank 1 did not come within 2 s"


def test_starting_and_writing_may_take_longer_than_a_run_may_stand_still(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "starts_late", timeout_s=3.0)
    launch(dataclasses.replace(given, writer="tests.real.programs:write_late"))
    assert store.load(given.out).info.complete


def test_a_rank_that_leaves_without_a_word_is_named(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "trains", ranks=2)
    assert end(given, (sys.executable, "-c", "import os; os._exit(0 if os.environ['RANK'] == '0' else 3)")) in (
        "rank 0 exited with code 0 before its first step",
        "rank 1 exited with code 3 before its first step",
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(signal.SIGQUIT, 131, marks=pytest.mark.slow),
        (signal.SIGKILL, -9),
    ],
)
def test_no_rank_outlives_its_launcher(tmp_path: Path, number: int, code: int) -> None:
    """Ctrl-C reaches the launcher alone, as its ranks have process groups of their own; SIGKILL leaves no last word.

    However often it comes, what was measured is kept: by `reports recover`, where it could not be by the launcher.
    """
    command = [sys.executable, "-m", "real", str(SCENARIO), "--quiet", "--program", "tests.real.programs:stalls"]
    launcher = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True)
    ranks = _ranks_that_play(launcher.pid, tmp_path)
    for _ in range(20):
        launcher.send_signal(number)
        time.sleep(0.05)
    _, told = launcher.communicate(timeout=START_S)
    assert launcher.returncode == code
    gone, alive = psutil.wait_procs(ranks, timeout=5.0)
    assert (len(gone), alive) == (3, [])
    name = signal.Signals(number).name
    assert told == ("" if number == signal.SIGKILL else f"the run was interrupted by {name}\n")
    if number == signal.SIGKILL:
        assert command_of("reports", "recover", tmp_path / "run").returncode == 0
        assert store.load(tmp_path / "run").info.error == "the launcher was lost in step 2"
    assert steps_kept(tmp_path / "run") == [(rank, step) for rank in range(2) for step in range(2)]
    assert os.listdir(tmp_path) == ["run"]


def test_a_signal_while_the_run_is_written_leaves_no_half_of_it(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "trains")
    with pytest.raises(RunEnded, match=r"^the run was interrupted by SIGTERM$") as caught:
        launch(dataclasses.replace(given, writer="tests.real.programs:write_and_be_told_to_stop"))
    assert caught.value.code == 143
    assert os.listdir(tmp_path) == ["run"]
    assert store.load(given.out).info.error == "the run was interrupted by SIGTERM"
    assert steps_kept(given.out) == [(rank, step) for rank in range(2) for step in range(3)]


def test_a_run_that_is_whole_stays_so_if_a_signal_comes_before_its_ranks_have_gone(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "trains")
    launch(given)
    given.spool.mkdir()
    spool.mark_written(given.spool)
    assert recovery.write_incomplete_run(given, "the run was interrupted by SIGTERM", 1.0) == (
        "the run was interrupted by SIGTERM"
    )
    assert store.load(given.out).info.complete
    assert os.listdir(tmp_path) == ["run"]


def test_unrecoverable_spool_is_one_sentence_and_stays(tmp_path: Path) -> None:
    given = job(tmp_path / "run", "trains")
    done = command_of("reports", "recover", given.out)
    nothing = f"there is no {tmp_path}/.run.*.spool; expected the spool folder of a run whose launcher was killed"
    assert (done.returncode, done.stderr) == (2, f"{given.out}: {nothing}\n")
    given.spool.mkdir()
    given.save(given.spool / spool.JOB_FILE)
    done = command_of("reports", "recover", given.out)
    writing = f"process {os.getpid()} is still writing it; expected a run whose launcher is gone"
    assert (done.returncode, done.stderr) == (2, f"{given.spool}: {writing}\n")
    assert find_left_behind(tmp_path) == []
    left = given.spool.rename(tmp_path / f".run.{2**22 + 1}.spool")  # pid_max is 2**22
    (left / spool.JOB_FILE).write_bytes(b"no job")
    done = command_of("reports", "recover", left)
    unreadable = f"{left / spool.JOB_FILE}: not readable by this release: UnpicklingError"
    assert (done.returncode, done.stderr) == (2, unreadable + "\n")
    assert find_left_behind(tmp_path) == [left]


def _ranks_that_play(launcher: int, folder: Path) -> list[psutil.Process]:
    """Return the launcher's two ranks and the process that forks them, once both have spooled their second step."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        spools = list(folder.glob(".run.*.spool/rank-*.spool"))
        if len(spools) == 2 and all(_steps(path) >= 2 for path in spools):
            return psutil.Process(launcher).children(recursive=True)
        time.sleep(0.05)
    raise AssertionError(f"the ranks did not play within {START_S} s")


def _steps(path: Path) -> int:
    return sum(kind == "spans" for kind, _ in spool.frames(path.read_bytes()))


def test_torchrun_starts_the_ranks_of_a_scenario(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--master-port",
        str(_free_port()),
        "--nproc-per-node",
        "2",
    ]
    command += ["-m", "real", str(SCENARIO), "--program", "tests.real.programs:trains"]
    done = _run([*command, "--out", str(tmp_path / "run"), "--check", "always", "--json"], {})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"] is True
    assert steps_kept(tmp_path / "run") == [(rank, step) for rank in range(2) for step in range(3)]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# A rank whose machine is another one, as far as it knows.
ELSEWHERE = """
import runpy, real.launch.worker
real.launch.worker.boot_id = lambda: "elsewhere"
runpy.run_module("real", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "start"),
    [
        ("is_killed", ["-m", "real"]),
        pytest.param("is_killed_later", ["-c", ELSEWHERE], marks=pytest.mark.slow),
    ],
    ids=["a rank of the same machine", "a rank that tells its steps now and then"],
)
def test_srun_starts_the_ranks_and_the_loss_of_one_ends_all(tmp_path: Path, program: str, start: list[str]) -> None:
    given = [str(SCENARIO), "--program", f"tests.real.programs:{program}"]
    commands = [[sys.executable, "-m", "real", *given], [sys.executable, *start, *given]]
    port = _free_port()
    processes = [
        subprocess.Popen(
            [*commands[rank], "--out", str(tmp_path / "run")],
            env={**os.environ, **_srun(rank, 2, port)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [process.communicate(timeout=2 * START_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [1, -9]
    assert told == ["rank 1 was lost in step 2\n", ""]
    assert steps_kept(tmp_path / "run") == [(rank, step) for rank in range(2) for step in range(2)]


@pytest.mark.parametrize(
    ("size", "code", "sentence"),
    [
        (2, 1, "rank 0 cannot listen at 127.0.0.1:{port}: Address already in use; expected a free MASTER_PORT\n"),
        (3, 2, f"{SCENARIO}: 1 hosts of 2 GPUs are 2 ranks, but srun started 3\n"),
    ],
    ids=["a port that is taken", "another number of ranks"],
)
def test_a_rank_that_srun_cannot_start_is_one_sentence(
    size: int, code: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, value in _srun(0, size, port).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(
            worker, "_watch_signals", lambda report: None
        )  # which would end the tests' process by Ctrl-C
        done = command_of("real", SCENARIO, "--out", tmp_path / "run")
    assert (done.returncode, done.stderr) == (code, sentence.format(port=port))


def test_a_mistake_in_the_scenario_is_said_before_any_process_starts(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(SCENARIO.read_text().replace("steps = 3", "steps = 0"))
    done = command_of("real", wrong, "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{wrong}: run.steps = 0: expected ")
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]


def _run(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=3 * START_S, check=False
    )


def _srun(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODELIST": "localhost",
        "SLURM_JOB_ID": "4242",
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

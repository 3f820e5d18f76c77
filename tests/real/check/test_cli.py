"""`python -m real check` on ranks that it starts, that torchrun starts and that srun starts; a fault is found."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from real.check.cases.cross_checks import Broadcast
from real.check.strategies import CASES, PROPERTIES
from tests.commands import command
from twinstep.measurement import main

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 150.0

# Python imports this module by itself, in a rank of torchrun and in the process that forks the launcher's ranks. On one
# of the real ranks, what is broadcast arrives with one bit flipped.
FAULT = """
import os, sys

if os.environ.get("RANK") == "1" or "real.launch.forker" in sys.orig_argv:
    import real.libraries.moves as libraries

    sent = libraries.broadcast

    def broadcast(joined, tensor, src):
        done = sent(joined, tensor, src)
        if os.environ["RANK"] == "1":
            done.work.wait()
            flat = libraries.as_bytes(tensor)
            if flat.numel():
                flat[0] ^= 1
        return done

    libraries.broadcast = broadcast
"""
# One of the real ranks is lost in a broadcast.
LOSS = """
import os, signal, sys

if "real.launch.forker" in sys.orig_argv:
    import real.libraries.moves as libraries

    sent = libraries.broadcast

    def broadcast(joined, tensor, src):
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return sent(joined, tensor, src)

    libraries.broadcast = broadcast
"""


def run(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def with_fault(folder: Path, fault: str) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(fault)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "TMPDIR": str(folder)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_properties_hold_on_ranks_started_by_the_command() -> None:
    done = command("real", "check", "--plays", 2, "--hosts", 1, "--gpus-per-host", 2, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["checks"]] == list(PROPERTIES)
    assert [(one["plays"], one["failure"]) for one in told["checks"]] == [(2, None)] * len(PROPERTIES)
    assert (told["hosts"], told["gpus_per_host"], told["library"]) == (1, 2, "gloo")


@pytest.mark.slow
def test_torchrun_gives_the_ranks() -> None:
    torchrun = ["-m", "torch.distributed.run", "--master-port", str(free_port()), "--nproc-per-node", "2"]
    done = run([*torchrun, "-m", "real", "check", "--plays", "3", "--property", "moves"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"moves +3 plays +\d+ cases  identical", lines[0])
    assert lines[1].startswith("2 ranks (1 hosts of 2), started by torchrun, gloo, torch ")
    assert lines[1].endswith(", seed 0: all identical to the simulator and the oracles")


@pytest.mark.slow
def test_srun_gives_the_ranks_and_says_on_how_many_hosts_they_are() -> None:
    given = {
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "2",
        "SLURM_NODELIST": "localhost",
        "SLURM_JOB_ID": "7",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "real", "check", "--plays", "2", "--property", "all_to_all"],
            cwd=ROOT,
            env={**os.environ, **given, "SLURM_PROCID": str(rank), "SLURM_LOCALID": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    assert "2 ranks (2 hosts of 1), started by srun, gloo" in told[0]
    assert told[1] == ""


@pytest.mark.slow
def test_a_bit_that_is_flipped_on_a_rank_is_found_shrunk_and_shown_by_the_printed_command(tmp_path: Path) -> None:
    environment = with_fault(tmp_path, FAULT)
    torchrun = ["-m", "torch.distributed.run", "--master-port", str(free_port()), "--nproc-per-node", "2"]
    done = run([*torchrun, "-m", "real", "check", "--property", "moves"], environment)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"moves +\d+ plays +\d+ cases  DIFFERENT", lines[0])
    assert re.match(r"real: Broadcast 0: rank 1: tensor 0: .*, expected ", lines[3])
    assert lines[-1].endswith(": 1 of 1 checks DIFFER")
    (words,) = [shlex.split(line) for line in lines if " --case " in line]
    assert words[:8] == ["torchrun", "--nnodes", "1", "--nproc-per-node", "2", "-m", "real", "check"]
    (text,) = words[words.index("--case") + 1 :]
    case = eval(text, dict(CASES))
    assert isinstance(case, Broadcast)
    assert sum(size > 1 for size in case.shape) == 0
    shown = run(["-m", "real", *words[7:]], environment)
    assert shown.returncode == 1, shown.stderr
    differing = [line.split(": tensor")[0] for line in shown.stdout.splitlines() if line.endswith("<-- differs")]
    assert differing == ["real: Broadcast 0: rank 1"]


def test_a_rank_that_is_lost_is_named_with_what_it_played(tmp_path: Path) -> None:
    done = run(["-m", "real", "check", "--gpus-per-host", "1", "--property", "moves"], with_fault(tmp_path, LOSS))
    assert done.returncode == 1
    assert done.stdout.startswith("The check was lost while it played\n    python -m real check --case ")
    assert "Broadcast(" in done.stdout
    assert re.match(r"rank 1 was killed by SIGKILL in step \d+; the ranks' logs lie in ", done.stderr)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--case", "AllGatherCase(hosts=1"], "--case 'AllGatherCase(hosts=1': "),
        (["--case", "GroupSpec()"], "--case 'GroupSpec()': expected such as 'AllGatherCase(hosts=1, gpus=2, numel=3)'"),
        (
            ["--hosts", "2", "--case", "AllGatherCase(hosts=1, gpus=2)"],
            "--case AllGatherCase(hosts=1, gpus=2): expected 2 hosts of 2 GPUs, as of the others",
        ),
        (["--timeout", "soon"], "--timeout = 'soon': expected a time such as '30 s'"),
    ],
)
def test_a_mistake_is_one_sentence(given: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *given]) == 2
    assert capsys.readouterr().err.startswith(sentence)

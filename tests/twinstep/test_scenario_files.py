"""`python -m scenarios` ends without a traceback, whatever becomes of its output or of the user's patience."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import command

ROOT = Path(__file__).parents[2]
DLRM, BARE = (str(ROOT / f"scenarios/library/{name}.toml") for name in ("twrw_2x2", "all_to_all_4x2"))
COMMANDS = [["schema"], ["check", BARE], ["plan", DLRM]]


def run_to(redirection: str, *arguments: str, path: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    """Run `python -m scenarios` with bash's `redirection`, where `exit ${PIPESTATUS[0]}` gives its code."""
    command = ["bash", "-c", f'"$@" {redirection}', "bash", sys.executable, "-m", "scenarios", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    for arguments in (["plan", DLRM], ["--help"]):
        done = run_to("| true; exit ${PIPESTATUS[0]}", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_a_closed_output_is_no_error() -> None:
    done = run_to(">&-", "check", BARE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence() -> None:
    for arguments in (["schema"], ["plan", DLRM]):
        done = run_to("> /dev/full", *arguments)
        said = "stdout: No space left on device; expected room for the output\n"
        assert (done.returncode, done.stderr) == (1, said), arguments


def test_mistakes_keep_their_code_when_nobody_reads_the_output() -> None:
    done = run_to("| true; exit ${PIPESTATUS[0]}", "check", BARE, "none.toml")
    assert done.returncode == 2
    assert done.stderr == "none.toml: no such file; expected a scenario in TOML\n"
    done = run_to("2>&1 | true; exit ${PIPESTATUS[0]}", "check", "none.toml", BARE)
    assert (done.returncode, done.stderr) == (2, "")


def test_an_interrupt_is_quiet_while_pydantic_loads(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise KeyboardInterrupt\n")
    for arguments in COMMANDS:
        done = run_to("", *arguments, path=f"{tmp_path}:{ROOT}")
        assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), arguments


@pytest.mark.parametrize("named", ["program", "model.dense"])
def test_a_check_without_code_runs_none_of_it(named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "was_run"
    code = tmp_path / "code.py"
    code.write_text(f"open({str(marker)!r}, 'w').close()\n")
    file = tmp_path / "my.toml"
    cluster = 'cluster = {profile = "cpu_local", hosts = 2, gpus_per_host = 1}\n'
    if named == "program":
        file.write_text(f'program = "./code.py:Train"\ntrain = {{size = 3}}\n{cluster}')
    else:
        table = '{name = "t", rows = 8, dim = 4, ids_per_sample = 2}'
        model = f'{{dense_features = 2, dense = "./code.py:Dense", tables = [{table}]}}'
        file.write_text(f'program = "dlrm"\nrun = {{batch_size = 4}}\nmodel = {model}\n{cluster}')
    assert command("scenarios", "check", "--no-code", file).returncode == 0
    assert not marker.exists()
    assert command("scenarios", "check", file).returncode == 2
    assert marker.exists()


def test_a_check_without_code_finds_what_else_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('program = "./code.py:Train"\nrun = {steps = 0}\ncluster = {profile = "cpu_local", hosts = 2}\n')
    done = command("scenarios", "check", "--no-code", file, BARE)
    assert (done.returncode, done.stdout) == (2, f"{BARE}: ok\n")
    assert done.stderr.splitlines() == [
        f"{file}: program = './code.py:Train': expected a file of Python that is there, but there is no"
        f" {tmp_path / 'code.py'}",
        f"{file}: run.steps = 0: expected a whole number of at least 1",
    ]

"""`twinstep completion`: shells complete commands, options, ready scenarios, profiles and files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scenarios.config.catalogue import library_files, profile_names
from twinstep.__main__ import COMMANDS, main

# Completes the words that are given, the last of which has only begun.
COMPLETE = """source "$0"
complete -p twinstep
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_twinstep
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes_what_a_command_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "twinstep.bash"
    file.write_text(script("bash", capsys))
    (tmp_path / "own.toml").touch()
    for words, expected in {
        "pre": ["predict"],
        "predict criteo_small": ["criteo_small_2x2"],
        "plan ow": ["own.toml"],
        "run criteo_small_2x2 --profile dgx_h": ["dgx_h100"],
        "predict criteo_small_2x2 --st": ["--step-only", "--steps", "--step-every"],
        "report kineto --ta": ["--table"],
        "profile h100": ["h100_pcie"],
        "nccl all_g": ["all_gather"],
        "init --tables ow": ["own.toml"],
    }.items():
        line = ["bash", "-c", COMPLETE, str(file), "twinstep", *words.split()]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        how, *found = done.stdout.splitlines()
        assert how == "complete -o bashdefault -o default -F _shtab_twinstep twinstep"
        assert found == expected, words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_command_scenario_and_profile(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "script"
    file.write_text(script(shell, capsys))
    names = {*COMMANDS, *(path.stem for path in library_files()), *profile_names()}
    assert names <= {*re.findall(r"[\w-]+", file.read_text())}
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(file)], check=True, timeout=60)

"""Overrides and studies from Python and from the commands."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import twinstep
from tests.commands import command
from tests.twinstep.studies.players import play_in_this_process

SIZE, HOSTS = "exchange.size", "cluster.hosts"


def test_a_key_that_is_set_is_that_of_a_file(tmp_path: Path) -> None:
    predicted = twinstep.predict("all_to_all_4x2", **{SIZE: "2 MiB", HOSTS: 2, "steps": 3})
    words = ["--set", f"{SIZE}=2 MiB", "--set", f"{HOSTS}=2", "--steps", "3", "--quiet", "--out", tmp_path / "run"]
    assert command("sim", "all_to_all_4x2", *words).returncode == 0
    stored = twinstep.load(tmp_path / "run")
    assert stored.info.digest == predicted.info.digest
    assert stored.info.world_size == 4
    pd.testing.assert_frame_equal(stored.operations, predicted.operations)


@pytest.mark.parametrize(
    "words", [["sim", "all_to_all_4x2"], ["real", "all_to_all_4x2"], ["real", "validate", "all_to_all_4x2"]]
)
def test_every_command_says_what_is_wrong_with_what_is_set(words: list[str]) -> None:
    done = command(*words, "--set", "cluster.hosts")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "--set 'cluster.hosts': expected KEY=VALUE, such as cluster.hosts=8 or model.tables[3].rows=1000\n"
    )
    done = command(*words, "--set", "cluster.hosts=0", "--set", f"{SIZE}=[1]")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "--set cluster.hosts = 0: expected a whole number of at least 1",
        "--set exchange.size = [1]: expected a size such as '80 GiB'",
    ]


def test_a_sweep_is_a_frame_whose_rows_are_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play_in_this_process(monkeypatch)
    (tmp_path / "study.toml").write_text(
        f'scenario = "all_to_all_4x2"\nbaseline = false\n[set]\nrun.steps = 3\n[vary]\n"{SIZE}" = ["1 MiB", "2 MiB"]\n'
        f'"{HOSTS}" = [2, 4]\n'
    )
    frame = twinstep.sweep(tmp_path / "study.toml", tmp_path / "out", jobs=1)
    assert frame[["index", SIZE, HOSTS]].to_numpy().tolist() == [
        [1, "1 MiB", 2],
        [2, "1 MiB", 4],
        [3, "2 MiB", 2],
        [4, "2 MiB", 4],
    ]
    last = twinstep.predict("all_to_all_4x2", **{SIZE: "2 MiB", HOSTS: 4, "steps": 3})
    assert frame["step_ns"].iloc[-1] == last.steps["step_ns"].median()
    pd.testing.assert_frame_equal(twinstep.study(tmp_path / "out"), frame)
    assert twinstep.load(tmp_path / "out" / frame["run"].iloc[-1]).info.digest == last.info.digest
    with pytest.raises(twinstep.ReportError, match=r"none: no such study; expected a folder of 'twinstep sweep'$"):
        twinstep.study(tmp_path / "none")

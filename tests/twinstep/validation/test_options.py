"""What cannot be asked of a validation is one sentence each, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinstep.validation.small import scenario_file
from twinstep.validation.cli import validate


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["--draws", "-1"], ["--draws = -1: expected at least 0"]),
        (["--rounds", "0"], ["--rounds = 0: expected at least 1"]),
        (["--precision", "2"], ["--precision = 2: expected a share between 0 and 1, such as 0.02"]),
        (["--precision", "nan"], ["--precision = nan: expected a share between 0 and 1, such as 0.02"]),
        (["--max-error", "-0.1"], ["--max-error = -0.1: expected a share of at least 0, such as 0.15"]),
        (
            ["--emulate", "b.toml"],
            ["--emulate = 'b.toml': expected emulated hosts' name; name scenarios before --emulate"],
        ),
        (
            ["--draws", "-1", "--rounds", "0"],
            ["--draws = -1: expected at least 0", "--rounds = 0: expected at least 1"],
        ),
    ],
)
def test_an_option_that_cannot_be_is_one_sentence(
    words: list[str], sentences: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scenario_file(tmp_path, "a")
    assert validate([str(file), "--out", str(tmp_path / "out"), *words]) == 2
    assert capsys.readouterr().err.splitlines() == sentences
    assert not (tmp_path / "out").exists()


def test_bad_files_are_reported_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = scenario_file(tmp_path, "good"), tmp_path / "bad.toml"
    bad.write_text('program = "all_to_all"\n[run]\nsteps = 0\n[cluster]\nprofile = "cpu_local"\nhosts = 1\n')
    none = tmp_path / "none.toml"
    assert validate([str(good), str(bad), str(none), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"{bad}: run.steps = 0: expected a whole number of at least 1",
        f"{bad}: exchange: missing; expected a table, because program = 'all_to_all'",
        f"{none}: no such file; expected a scenario in TOML",
    ]
    assert not (tmp_path / "out").exists()


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    first, second = scenario_file(tmp_path, "a"), scenario_file(tmp_path / "other", "a")
    assert validate([str(first), str(second), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"{second}: name = 'a': expected another name than that of {first}, as each scenario has a folder and a row"
        " of its own\n"
    )


def test_a_folder_that_is_taken_is_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate([str(scenario_file(tmp_path, "a")), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"{tmp_path}: exists already; nothing is ever overwritten, give another folder\n"
    )


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["--emulate"], ["--emulate: expected without torchrun or srun, as it starts the ranks itself"]),
        (["--rounds", "2"], ["--rounds = 2: expected 1 under torchrun, which starts the ranks once"]),
        (["SECOND"], ["2 scenarios: expected 1 under torchrun, which starts the ranks once"]),
    ],
)
def test_under_torchrun_there_is_one_round_of_one_scenario(
    words: list[str],
    sentences: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    files = [str(scenario_file(tmp_path, "a"))]
    if words == ["SECOND"]:
        files, words = [*files, str(scenario_file(tmp_path, "b"))], []
    assert validate([*files, "--out", str(tmp_path / "out"), *words]) == 2
    assert capsys.readouterr().err.splitlines() == sentences
    monkeypatch.setenv("RANK", "1")  # which leaves it to rank 0
    assert validate([*files, "--out", str(tmp_path / "out"), *words]) == 2
    assert capsys.readouterr().err == ""

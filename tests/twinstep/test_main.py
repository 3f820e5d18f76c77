"""The command `twinstep` is the commands of the rooms under one name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from twinstep.__main__ import COMMANDS, main
from twinstep.prediction import main as sim
from twinstep.scenario_files import main as scenarios


def read_help(prog: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as leaving:
        main([*words, "--help"], prog)
    assert leaving.value.code == 0
    return capsys.readouterr().out


def wide(printed: str) -> list[str]:
    """Return the lines over 80 columns, without those of a single word, such as a path, which is printed whole."""
    return [line for line in printed.splitlines() if len(line) > 80 and " " in line.strip()]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("prog", ["twinstep", "python -m twinstep"])
def test_help_names_the_command_that_was_called_in_80_columns(
    command: str, prog: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = read_help(prog, [command], capsys)
    assert said.startswith(f"usage: {prog} {command} [-h]")
    own = re.findall(r"^    ([a-z]+)\b", said, re.MULTILINE) if " COMMAND ..." in said else []
    assert wide("".join([said, *(read_help(prog, [command, word], capsys) for word in own)])) == []


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    listed = read_help("twinstep", [], capsys)
    assert {line.split()[0] for line in listed.splitlines() if line.startswith("    ")} >= set(COMMANDS)


@pytest.mark.parametrize("command", ["predict", "run", "validate"])
def test_a_mistake_is_the_command_s_own_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main([command, "none.toml"])
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    assert (code, capsys.readouterr()) == (2, ("", "none.toml: no such file; expected a scenario in TOML\n"))


def test_listings_and_notes_print_what_python_m_scenarios_does_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    noted = tmp_path / "s.toml"
    noted.write_text('include = "twrw_2x2"\nrun.library = "gloo"\ncluster = {profile = "dgx_h100", hosts = 2}\n')
    for words in (["list"], ["check", "twrw_2x2", str(noted)]):
        assert (main(words), scenarios(words)) == (0, 0)
        printed, notes = capsys.readouterr()
        assert printed[: len(printed) // 2] * 2 == printed
        assert (wide(printed), wide(notes)) == ([], [])
    assert "note: " in notes


def test_predict_and_report_make_what_python_m_sim_and_reports_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    assert main(["predict", "twrw_2x2", "--steps", "1", "--quiet", "--out", str(folders[0])]) == 0
    assert sim(["twrw_2x2", "--steps", "1", "--quiet", "--out", str(folders[1])]) == 0
    assert len({(folder / "spans.parquet").read_bytes() for folder in folders}) == 1
    assert main(["report", "show", str(folders[0])]) == 0
    assert "twrw_2x2: predicted" in capsys.readouterr().out
    assert main(["report", str(folders[0])]) == 0
    assert (folders[0] / "reports" / "report.html").is_file()
    assert main(["compare", *map(str, folders)]) == 2
    assert "expected a simulated and a real one" in capsys.readouterr().err


def test_an_unknown_command_is_refused_and_the_release_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["predit"])
    assert leaving.value.code == 2
    assert "invalid choice: 'predit'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("twinstep ")


def test_run_starts_the_ranks(tmp_path: Path) -> None:
    file, out = tmp_path / "exchange.toml", tmp_path / "run"
    file.write_text('program = "all_to_all"\ncluster = {profile = "cpu_local", hosts = 2}\nexchange = {size = "8 B"}\n')
    line = [sys.executable, "-m", "twinstep", "run", str(file), "--steps", "1", "--out", str(out), "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out}\n", "")

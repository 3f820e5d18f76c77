"""`python -m real` says what is wrong around a run, or left out of its scenario, before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from real.__main__ import leave, main

SLOW = """program = "all_to_all"
cluster = {profile = "cpu_local", hosts = 2, slow = [{host = 1, nic = 0, speed = 0.5}]}
exchange = {size = "1 MiB"}
"""


@pytest.mark.parametrize("emulate", [(), ("--emulate",)])
def test_a_fault_that_real_devices_do_not_have_is_said_once(
    emulate: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("real.__main__._run", lambda job, options: 0)  # where emulated hosts refuse it
    file = tmp_path / "slow.toml"
    file.write_text(SLOW)
    assert main([str(file), "--quiet", "--out", str(tmp_path / "out"), *emulate]) == 0
    note = f"note: {file}: cluster.slow: 1 of the cluster's parts is slow in predictions only;"
    assert capsys.readouterr().err == ("" if emulate else f"{note} a real run takes its devices as they are\n")


@pytest.mark.parametrize("words", [["FILE"], ["validate", "FILE"], ["check"]])
def test_a_place_that_is_given_by_half_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variables of torchrun that a shell or a job has set by itself."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    file = tmp_path / "fast.toml"
    file.write_text(SLOW.replace(", slow = [{host = 1, nic = 0, speed = 0.5}]", ""))
    out = [] if words == ["check"] else ["--out", str(tmp_path / "out")]
    assert main([str(file) if word == "FILE" else word for word in words] + out) == 2
    assert capsys.readouterr().err == "environment: LOCAL_RANK: missing; expected as set by torchrun or srun\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fast.toml"]
    with pytest.raises(SystemExit, match="2"):
        leave(2)

"""`python -m real` says what a run leaves out of its scenario, before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from real.__main__ import main

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

"""`python -m real calibrate`: its refusals, its plan before it measures, its probes on real ranks, and its output."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pytest
import torch

from real.calibration.network.fit import Residual, observe
from real.calibration.network.probes import schedule
from real.calibration.play import read_kept
from real.launch.job import PROGRAM, WRITER, Job, function
from real.launch.launcher import launch, spool_folder
from real.machine import cores
from sim.run import simulate
from tests.small import scenario
from twinstep.calibration.cli import PROGRAMS, _view, calibrate, nominal
from twinstep.calibration.telling import tell

CORE, HOST = ("--kernels", "--like", "cpu_local"), ("--host", "--like", "dgx_h100")


def refuse(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert calibrate(list(arguments), simulate) == 2
    return capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "a.yaml"], "--out = 'a.yaml': expected a path that ends in .toml"),
        (["--out", "there.toml"], "there.toml already exists: choose another --out"),
        (["--out", "no/a.toml"], "--out = 'no/a.toml': expected a folder that exists"),
        (["--hosts", "1"], "--hosts = 1: expected 2 to 1000"),
        (["--nic", "fast"], "--nic = 'fast': expected a rate such as '200mbit' or '200 Mbit/s'"),
        (["--like", "dgx_h100"], "--like = 'dgx_h100': expected with --kernels or --host"),
        (["--kernels"], "--like: missing; expected a profile such as 'dgx_h100' with --kernels"),
        ([*CORE, "--hosts", "2"], "--hosts = 2: expected without --kernels, which measures no network"),
        ([*CORE, "--nic", "1gbit"], "--nic = 1gbit: expected without --kernels, which measures no network"),
        ([*CORE, "--seconds", "3"], "--seconds = 3.0: expected with --kernels and a profile of GPUs"),
        ([*CORE, "--of", "dlrm_x"], "--of = dlrm_x: expected with --kernels and a profile of GPUs"),
        (["--host"], "--like: missing; expected a profile such as 'dgx_h100' with --host"),
        ([*HOST, "--hosts", "2"], "--hosts = 2: expected without --host, which measures no network"),
        ([*HOST, "--ranks-per-host", "2"], "--ranks-per-host = 2: expected 1 with --host, which measures one process"),
        (HOST, "--like = 'dgx_h100': expected a machine with a CUDA device for --host"),
        (
            ["--host", "--like", "cpu_local"],
            "--like = 'cpu_local': expected a profile of GPUs with --host; beside a CPU, what its host does is in the"
            " kernels' times",
        ),
    ],
)
def test_wrong_options_are_one_sentence(
    arguments: Sequence[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    Path("there.toml").touch()
    assert refuse([*([] if "--out" in arguments else ["--out", "a.toml"]), *arguments], capsys) == sentence
    assert not Path("a.toml").exists()


@pytest.mark.parametrize("name", [PROGRAM, WRITER, *PROGRAMS.values()])
def test_programs_name_functions(name: str) -> None:
    assert callable(function(name))


def test_more_ranks_than_cores_can_serve_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    most = 4 * cores()
    sentence = refuse(["--out", str(tmp_path / "a.toml"), "--ranks-per-host", str(most + 1)], capsys)
    assert sentence == f"--ranks-per-host = {most + 1}: expected 1 to {most}, four for each core"


def test_nominal_cluster_has_the_machine_and_the_rate() -> None:
    cluster = nominal(4, 2, 25e6)
    assert (cluster.hosts, cluster.world_size, cluster.hosts_share_cores, cluster.tcp) == (4, 8, True, None)
    assert cluster.host.cores == cores()
    assert cluster.host.nics.link.bytes_per_s == 25e6
    assert cluster.payload_share == 1448 / 1514
    assert nominal(2, 1, None).payload_share == 1.0


@pytest.mark.slow
def test_the_network_probes_of_real_ranks_read_as_simulated_ones_do(tmp_path: Path) -> None:
    on = nominal(2, 2, 25e6)  # with 25 MB/s the bulk is small; what the loopback really does matters not
    played = dataclasses.replace(scenario(on).with_run(timeout_s=60.0), name="probes")
    out = tmp_path / "run"
    launch(
        Job(
            scenario=played,
            program="real.calibration.network.probes:NetworkProbes",
            writer="real.calibration.play:keep",
            out=out,
            spool=spool_folder(out),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            check="never",
        )
    )
    recording = read_kept(out)
    sight = observe(schedule(on), recording.spans, recording.metrics)
    assert set(sight) == {(probe.name, probe.size_bytes) for probe in schedule(on)}
    for key, seen in sight.items():
        counted = sum(probe.repeats - 3 for probe in schedule(on) if (probe.name, probe.size_bytes) == key)
        assert len(seen.whole_s) == counted, key  # some probes come several times
        assert min(seen.whole_s) > 0, key
    assert 0 < median(sight["wake", 0].parts_s["wake_s/0"]) < 0.01
    # A megabyte takes longer than a word, and both ranks of the pair say what it costs their machine.
    assert median(sight["message", 1 << 20].whole_s) > median(sight["ping", 4].whole_s)
    for name in ("cpu_process_s/0", "cpu_machine_s/0", "cpu_process_s/2", "cpu_machine_s/2"):
        assert sum(sight["cpu", 1 << 20].parts_s[name]) > 0, name
    # Of a barrier gloo's threads do a part, the program's the rest.
    barriers = sight["cpu", 0].parts_s
    assert 0 < sum(barriers["cpu_others_s/0"]) < sum(barriers["cpu_process_s/0"])


PING = Residual(probe="ping", size_bytes=4, measured_s=1e-4, low_s=9e-5, high_s=1.3e-4, predicted_s=1.1e-4)
OUT = Path("mine.toml")


def test_residuals_are_a_table_with_the_profiles_path_below(capsys: pytest.CaptureFixture[str]) -> None:
    tell(_view([PING]), Namespace(json=False, quiet=False, out=OUT))
    said = capsys.readouterr().out
    assert said.startswith("Calibration residuals\n")
    assert "ping    4 B    100 us  90.0 us to 130 us  110 us  +10.0 %" in said
    assert said.endswith("\nmine.toml\n")


def test_quietly_only_the_path_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    tell(_view([PING]), Namespace(json=False, quiet=True, out=OUT))
    assert capsys.readouterr().out == "mine.toml\n"


def test_json_has_the_times_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    tell(_view([PING]), Namespace(json=True, quiet=True, out=OUT))
    found = json.loads(capsys.readouterr().out)
    assert found["profile"] == "mine.toml"
    (probe,) = found["probes"]
    assert probe.pop("error") == pytest.approx(0.1)
    assert probe == {name: getattr(PING, name) for name in Residual.__slots__}

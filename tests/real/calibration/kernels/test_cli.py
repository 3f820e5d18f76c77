"""`python -m real calibrate --kernels`: what it refuses; a profile of the device at hand that is else as another."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from real.calibration.cli import calibrate
from real.calibration.host import cli as host_cli
from real.calibration.host.counted import Counted
from real.calibration.host.fit import HostFit, Timed
from real.calibration.kernels import cli as calibrate_kernels
from real.calibration.kernels.device import DeviceProbes
from real.calibration.kernels.probes import WARM_UP
from real.calibration.kernels.workloads import DEVICE, HOST
from real.calibration.profile import cpu_name
from real.machine import cores
from scenarios.config.hardware import Cluster
from scenarios.config.kernel_kinds import KERNEL_KINDS
from scenarios.config.load import load_measured, load_profile
from scenarios.config.scenario import Scenario
from scenarios.seam.host_work import HostWork
from scenarios.seam.trace import Recording
from sim.run import simulate

KINDS = set(KERNEL_KINDS)


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert calibrate(["--kernels", *arguments], simulate) == 2
    return capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--like: missing; expected a profile such as 'dgx_h100' with --kernels"),
        (["--like", "cpu_local", "--hosts", "2"], "--hosts = 2: expected without --kernels, which measures no network"),
        (
            ["--like", "cpu_local", "--nic", "1gbit"],
            "--nic = 1gbit: expected without --kernels, which measures no network",
        ),
        (
            ["--like", "dgx_h100"],
            "--like = 'dgx_h100': expected a profile of CPUs, as this machine has no CUDA devices",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert refused(["--out", str(tmp_path / "a.toml"), *arguments], capsys) == sentence


def test_each_rank_needs_a_device_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    out, most = ["--out", str(tmp_path / "a.toml")], cores()
    sentence = refused([*out, "--like", "dgx_h100", "--ranks-per-host", "3"], capsys)
    assert sentence == "--ranks-per-host = 3: expected 1 to 2, one for each CUDA device"
    sentence = refused([*out, "--like", "cpu_local", "--ranks-per-host", str(most + 1)], capsys)
    assert sentence == f"--ranks-per-host = {most + 1}: expected 1 to {most}, one for each core"


def test_a_profile_that_is_not_there_is_said_as_scenarios_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'dgx_x'" in refused(["--out", str(tmp_path / "a.toml"), "--like", "dgx_x"], capsys)


@pytest.mark.slow
def test_a_core_is_measured_on_a_real_rank_and_all_else_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate_kernels, "_LAUNCHES", {"cpu": 1})
    monkeypatch.setattr(calibrate_kernels, "ROUNDS", 1)
    out = tmp_path / "mine.toml"
    assert calibrate(["--kernels", "--like", "cpu_local", "--out", str(out), "--json"], simulate) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["between_events_ns"], said["host"]) == (None, None)
    assert {one["what"] for one in said["reached"]} == {"memory", "float32", *HOST.other_dtypes}
    assert {one["peak_per_s"] for one in said["reached"]} == {None}
    like, found, measured = load_profile("cpu_local"), load_profile(str(out)), load_measured(str(out))
    gpu = found.host.gpu
    assert dataclasses.replace(found, profile="cpu_local", host=like.host) == like
    assert dataclasses.replace(found.host, gpu=like.host.gpu) == like.host
    assert (gpu.name, gpu.kind, gpu.memory_bytes) == (f"a core of {cpu_name()}", "cpu", like.host.gpu.memory_bytes)
    assert set(gpu.launches_ns) == KINDS
    assert set(gpu.efficiency) == KINDS | {"default"}
    assert (gpu.ramp_ns, gpu.ramps_ns) == (0, {})
    assert measured is not None
    assert {group.name for group in measured.groups} == {f"{kind} kernels" for kind in KINDS}
    assert measured.command == f"python -m real calibrate --kernels --like cpu_local --out {out} --json"
    assert "# Not measured: as in cpu_local.\n[cluster.inside]" in out.read_text()


def play_in_simulation(shares: Mapping[str, float]) -> object:
    """In place of real ranks: a simulated GPU."""

    def play(bar: object, scenario: Scenario, program: str, hosts: object, *, steps: int) -> Recording:
        assert program == "real.calibration.kernels.device:DeviceProbes"
        assert (scenario.library, scenario.cluster.world_size) == ("nccl", 1)
        assert scenario.steps + WARM_UP == steps
        few = dataclasses.replace(scenario, steps=2)
        host, gpu = scenario.cluster.host, scenario.cluster.host.gpu
        gpu = dataclasses.replace(
            gpu,
            priced_by="efficiency",
            efficiency={"gemm": 0.7, **shares, "default": 0.5},
            ramp_ns=3_000,
            ramps_ns={"gemm": 5_000},
        )
        cluster = dataclasses.replace(scenario.cluster, host=dataclasses.replace(host, gpu=gpu))
        few = dataclasses.replace(few, cluster=cluster)
        sizes = dataclasses.replace(DEVICE, bags=HOST.bags)
        return simulate(few, DeviceProbes(few, sizes))

    return play


def measure_host_at_once(like: Cluster, bar: object) -> host_cli.HostFound:
    """In place of timing: a host whose calls take twice as long as in the profile, by one snippet of launches alone."""
    eager = like.host.gpu.eager
    row = Counted(work=HostWork(calls=10), collectives=0, launches_ns=4_000, moved_bytes=(64.0,))
    twice = dataclasses.replace(eager, call_ns=2 * eager.call_ns)
    timed = [Timed(name="modules", counted=row, taken_ns=(4_000 + 10 * twice.call_ns,))]
    return host_cli.HostFound(
        fit=HostFit(eager=twice, factor=1.5, unseen=("bags",)), timed=timed, held_out=[dataclasses.replace(timed[0])]
    )


@pytest.fixture
def _h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """One GPU, by its driver's figures, and its host."""
    told = SimpleNamespace(name="NVIDIA H100", total_memory=79 << 30, multi_processor_count=114, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: told)
    monkeypatch.setattr(host_cli, "measure_host", measure_host_at_once)


@pytest.mark.usefixtures("_h100")
def test_a_gpu_is_written_with_its_ramps_its_hosts_prices_and_its_drivers_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate_kernels, "play", play_in_simulation({}))
    out = tmp_path / "mine.toml"
    assert calibrate(["--kernels", "--like", "dgx_h100", "--out", str(out)], simulate) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.endswith(f"{out}\n")
    assert "What a host takes" in shown.out
    like, found = load_profile("dgx_h100"), load_profile(str(out))
    assert dataclasses.replace(found, profile="dgx_h100", host=like.host) == like
    gpu, sheet = found.host.gpu, like.host.gpu
    assert dataclasses.replace(found.host, gpu=sheet) == like.host
    assert (gpu.flops_per_s, gpu.memory_bytes_per_s) == (sheet.flops_per_s, sheet.memory_bytes_per_s)
    assert (gpu.name, gpu.memory_bytes, gpu.multiprocessors) == ("NVIDIA H100", 79 << 30, 114)
    assert (gpu.launch_ns, gpu.launches_ns) == (sheet.launch_ns, sheet.launches_ns)
    assert gpu.eager == dataclasses.replace(sheet.eager, call_ns=2 * sheet.eager.call_ns)
    assert gpu.ramps_ns["gemm"] == pytest.approx(5_000, rel=0.02)
    assert gpu.ramps_ns["permute"] == pytest.approx(3_000, rel=0.02)
    assert gpu.efficiency["gemm"] == pytest.approx(0.7, rel=0.02)
    assert gpu.efficiency["permute"] == pytest.approx(0.5, rel=0.02)
    text = out.read_text()
    for remark in (
        "# Not measured: as in dgx_h100.\n[cluster]",
        "# Not measured: the peaks as in dgx_h100.\n[cluster.gpu.flops]",
        "# Not measured: as in dgx_h100.\n[cluster.inside]",
        "# Not measured: as in dgx_h100.\n[cluster.nic]",
        "# Not measured: as in dgx_h100.\n[cluster.network]",
        "50% of the peak\n",
        "ramps have that in them.\n[cluster.gpu]",
        "# Not measured: as in dgx_h100.\n[cluster.gpu.launches]",
        "# Not measured: bags, as in dgx_h100 times 1.50.\n[cluster.gpu.eager]",
    ):
        assert remark in text
    measured = load_measured(str(out))
    assert measured is not None
    assert {group.name for group in measured.groups} >= {"gemm kernels", "gemm bfloat16 kernels", "qr kernels"}
    assert measured.groups[-1].name == "host of eager programs"


@pytest.mark.usefixtures("_h100")
def test_a_data_sheet_that_the_device_outdoes_is_another_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate_kernels, "play", play_in_simulation({"reduction": 2.0}))
    out = tmp_path / "mine.toml"
    assert calibrate(["--kernels", "--like", "dgx_h100", "--out", str(out), "--quiet"], simulate) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err == (
        "memory: kernels reach 4,077 GB/s, 122% of the peak of --like = 'dgx_h100':"
        " expected the profile of this device\n"
    )
    assert load_profile(str(out)).host.gpu.efficiency["reduction"] == 1.0

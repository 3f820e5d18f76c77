"""`python -m real calibrate --kernels` with a profile of GPUs: a table and a profile; `--of` a run; what is refused."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from real.calibration.host.counted import Counted
from real.calibration.host.fit import HostFit, TimedSnippet
from real.calibration.operators import measuring
from real.calibration.operators.draws import GPU_SCALE
from real.calibration.operators.judging import judge
from reports.store import run_folder as store
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_measured, load_profile
from scenarios.kernel_tables.file import read_table
from scenarios.seam.host_work import HostWork
from scenarios.seam.operations.as_json import operations_of
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.operation import words as words_of
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.operations.products import Product
from sim.engine.prices import Prices
from tests.commands import command
from tests.real.calibration.operators.simulated import LawTimer, another
from twinstep.calibration import host as host_cli
from twinstep.calibration import operators as cli

LIKE = load_profile("hgx_h200")
SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = torch.nn.Linear(int(sys.argv[1]), 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.zeros(32, int(sys.argv[1]), device="cuda")).relu().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def calibrate(out: Path, *words: object, like: str = "hgx_h200") -> tuple[int, str, str]:
    """Return exit code, output and errors of the command."""
    done = command("real", "calibrate", "--kernels", "--like", like, "--out", out, *words)
    return done.returncode, done.stdout, done.stderr.strip()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nic", "1gbit"], "--nic = 1gbit: expected without --kernels, which measures no network"),
        (["--hosts", "2"], "--hosts = 2: expected with --of a script, as one GPU is measured"),
        (["--ranks-per-host", "2"], "--ranks-per-host = 2: expected with --of a script, as one GPU is measured"),
        (["--seconds", "0"], "--seconds = 0.0: expected more than 0"),
        (["--seconds", "-1"], "--seconds = -1.0: expected more than 0"),
        (["--seconds", "nan"], "--seconds = nan: expected more than 0"),
        (
            [],
            "--like = 'hgx_h200': expected a machine with a CUDA device, a profile of CPUs, or --device cpu to"
            " rehearse",
        ),
        (["--device", "cpu", "--of", "no_such"], "no_such"),
        (["--device", "cpu", "--of", "twrw_2x2", "--hosts", "2"], "--hosts = 2: expected with --of a script; twrw_2x2"),
    ],
)
def test_wrong_operator_options_are_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    code, _, error = calibrate(tmp_path / "a.toml", *words)
    assert (code, error.count("\n")) == (2, 0)
    assert error.startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_options_of_operators_are_refused_elsewhere(tmp_path: Path) -> None:
    for words in (["--of", "x"], ["--seconds", "3"], ["--device", "cpu"]):
        done = command("real", "calibrate", "--out", tmp_path / "a.toml", *words)
        assert done.returncode == 2
        assert done.stderr.endswith(": expected with --kernels and a profile of GPUs\n")
    (tmp_path / "a.parquet").touch()
    code, _, error = calibrate(tmp_path / "a.toml", "--device", "cpu")
    assert (code, error) == (2, f"{tmp_path / 'a.parquet'} already exists: choose another --out")


def test_a_gpu_without_laws_has_no_operators_to_measure(tmp_path: Path) -> None:
    text = (Path(cli.__file__).parents[2] / "scenarios/profiles/dgx_a100.toml").read_text()
    file = tmp_path / "like.toml"
    file.write_text(text.replace("[cluster.gpu]\n", "[cluster.gpu]\npriced_by = 'efficiency'\n"))
    code, _, error = calibrate(tmp_path / "a.toml", "--device", "cpu", like=str(file))
    assert (code, error) == (
        2,
        f"--like = '{file}': expected a profile whose GPU has laws of operators: priced_by = 'laws', with"
        " multiprocessors",
    )


def test_a_core_is_measured_through_the_command_as_a_rehearsal(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    code, said, error = calibrate(out, "--device", "cpu", "--seconds", "1.5", "--json")
    assert (code, error) == (0, "")
    found = json.loads(said)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.parquet", "mine.toml"]
    rows = read_table(tmp_path / "mine.parquet")
    assert len(rows) == found["in_table"] > 20
    assert not any(row.is_cold for row in rows)
    profile, measured = load_profile(str(out)), load_measured(str(out))
    gpu, like = profile.host.gpu, LIKE.host.gpu
    assert gpu.kernel_tables == (*like.kernel_tables, str(tmp_path / "mine.parquet"))
    same = dataclasses.replace(gpu, kernel_tables=like.kernel_tables)
    assert dataclasses.replace(profile, profile="hgx_h200", host=dataclasses.replace(profile.host, gpu=same)) == LIKE
    assert measured is not None
    assert measured.command.endswith("--device cpu --seconds 1.5 --json")
    text = out.read_text()
    assert "# A rehearsal: the table's times are those of a CPU (" in text
    assert "# Not measured: as in hgx_h200.\n[cluster.nic]" in text
    assert found["host"] is None


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> LawTimer:
    """Put a simulated GPU in place of this machine's."""
    made = LawTimer(another(LIKE.host.gpu))
    monkeypatch.setattr(cli, "timer_of", lambda device, expected_s: made)
    monkeypatch.setattr(cli, "CPU_SCALE", GPU_SCALE)
    return made


def predict(profile: Path, operations: list[Operation]) -> list[float]:
    prices = Prices(load_profile(str(profile)).host.gpu)
    return [prices.seconds(each) for each in operations]


def test_script_operators_are_measured_by_share_of_time(tmp_path: Path, timer: LawTimer) -> None:
    script, out = tmp_path / "train.py", tmp_path / "mine.toml"
    script.write_text(SCRIPT)
    code, said, error = calibrate(out, "--device", "cpu", "--json", "--of", script, "479")
    assert (code, error) == (0, "")
    rows = [row.operations[0] for row in read_table(tmp_path / "mine.parquet")]
    products = [each for each in rows if isinstance(each, Product)]
    assert {(each.rows, each.inner, each.columns) for each in products} >= {(32, 479, 64)}
    assert rows == timer.asked
    assert not [each for each in rows if isinstance(each, Pointwise) and each.elements > 64 * 479]
    assert json.loads(said)["share_of_run"] == pytest.approx(1, abs=0.02)
    alone_s = dict(zip(rows, predict(out, rows), strict=True))
    for operation in rows:  # as the simulated GPU has it, caches warm
        cold_us = sum(timer.times_us(operation)) / 3
        assert 0.3 < 1e6 * alone_s[operation] / cold_us < 1.05


def test_scenario_and_its_run_folder_give_the_same_operators(tmp_path: Path, timer: LawTimer) -> None:
    own = tmp_path / "own.toml"
    own.write_text('include = "twrw_2x2"\n[run]\nsteps = 3\n[cluster]\nprofile = "hgx_h200"\n')
    run = tmp_path / "run"
    assert command("sim", own, "--out", run, "--quiet").returncode == 0
    code, _, error = calibrate(tmp_path / "a.toml", "--device", "cpu", "--quiet", "--of", own)
    assert (code, error) == (0, "")
    first, timer.asked = timer.asked, []
    own.unlink()
    code, _, error = calibrate(tmp_path / "b.toml", "--device", "cpu", "--quiet", "--of", run)
    assert (code, error) == (0, "")
    assert timer.asked == first
    assert len(first) > 10


def test_script_run_folder_gives_its_operators(tmp_path: Path, timer: LawTimer) -> None:
    script, run = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    given = ("--profile", "hgx_h200", "--hosts", "1", "--gpus-per-host", "1", "--out", run, "--quiet", script, "479")
    assert command("sim", *given).returncode == 0
    script.unlink()
    asked = []
    for name, of in (("a.toml", run / "recording.json.gz"), ("b.toml", run)):
        code, _, error = calibrate(tmp_path / name, "--device", "cpu", "--quiet", "--of", of)
        assert (code, error) == (0, "")
        asked.append(timer.asked)
        timer.asked = []
        (run / "recording.json.gz").unlink(missing_ok=True)
    assert asked[0] == asked[1]
    assert {(each.rows, each.inner, each.columns) for each in asked[1] if isinstance(each, Product)} >= {(32, 479, 64)}


def test_operators_that_only_other_ranks_run_are_in_the_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert command("sim", "twrw_2x2", "--profile", "hgx_h200", "--out", run, "--quiet").returncode == 0
    described = {each for row in store.operators_in(run) for each in operations_of(row.operations)}
    of_first = set(store.load(run).kernels["shapes"])
    assert {words_of(each)[1] for each in described} > of_first


def test_a_folder_without_descriptions_is_one_sentence(tmp_path: Path) -> None:
    run, expected = tmp_path / "run", "a run on GPUs that this release predicted, a recording, a scenario or a script"
    assert command("sim", "twrw_2x2", "--out", run, "--quiet").returncode == 0  # on CPUs
    found = [calibrate(tmp_path / "a.toml", "--device", "cpu", "--of", run)]
    (run / "operators.parquet").unlink()
    assert command("reports", "show", run).returncode == 0
    found.append(calibrate(tmp_path / "a.toml", "--device", "cpu", "--of", run))
    assert [(code, error) for code, _, error in found] == [
        (2, f"--of = '{run}': describes no operators with a law; expected {expected}"),
        (2, f"--of = '{run}': has no operators.parquet, as an earlier release wrote it; expected {expected}"),
    ]


def test_path_without_a_run_is_refused(tmp_path: Path) -> None:
    for text, sentence in (
        (None, f"{tmp_path}: not a run folder: it has no run.json"),
        ("[]", f"{tmp_path / 'run.json'}: not written by this project: it has no schema_version"),
    ):
        if text is not None:
            (tmp_path / "run.json").write_text(text)
        code, _, error = calibrate(tmp_path / "a.toml", "--device", "cpu", "--of", tmp_path)
        assert (code, error) == (2, f"--of: {sentence}")


def test_a_command_that_was_interrupted_goes_on_where_it_stood(
    tmp_path: Path, timer: LawTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_BATCH", 4)
    out, words = tmp_path / "a.toml", ("--device", "cpu", "--json", "--of", "twrw_2x2")
    take = timer.take

    def interrupt(batch: object) -> object:
        if len(timer.asked) >= 8:
            raise KeyboardInterrupt
        return take(batch)  # type: ignore[arg-type]

    monkeypatch.setattr(timer, "take", interrupt)
    code, _, error = calibrate(out, *words)
    assert (code, error) == (130, f"{tmp_path / 'a.parquet.part'}: 8 operators are in it; the same command goes on")
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet.part"]
    first = list(timer.asked)
    assert len(first) == 8
    monkeypatch.setattr(timer, "take", take)
    code, said, error = calibrate(out, *words)
    assert (code, error) == (0, "")
    assert len(set(timer.asked)) == len(timer.asked) == json.loads(said)["measured"] > 8
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.parquet", "a.toml"]
    assert [row.operations[0] for row in read_table(tmp_path / "a.parquet")] == timer.asked
    code, _, error = calibrate(tmp_path / "b.toml", *words, "--of", "powersgd_4x2_3g")
    assert code == 0, error


def test_families_without_time_are_reported(tmp_path: Path, timer: LawTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    take = timer.take

    def slow(batch: object) -> object:
        now_s[0] += 1.0
        return take(batch)  # type: ignore[arg-type]

    monkeypatch.setattr(timer, "take", slow)
    code, said, _ = calibrate(tmp_path / "a.toml", "--device", "cpu", "--seconds", "0.5")
    assert code == 0
    assert "24 operators of " in said
    assert "Not measured, as there was no time: " in said
    assert "softmax float32" in (tmp_path / "a.toml").read_text()


def measure_host_at_once(like: Cluster, bar: object) -> host_cli.HostFound:
    """In place of timing: a host whose calls take twice as long as in the profile, by one snippet of launches alone."""
    eager = like.host.gpu.eager
    row = Counted(work=HostWork(calls=10), collectives=0, launches_ns=4_000, moved_bytes=(64.0,))
    twice = dataclasses.replace(eager, call_ns=2 * eager.call_ns)
    timed = [TimedSnippet(name="modules", counted=row, taken_ns=(4_000 + 10 * twice.call_ns,))]
    return host_cli.HostFound(
        fit=HostFit(eager=twice, factor=1.5, unseen=("bags",)), timed=timed, held_out=[dataclasses.replace(timed[0])]
    )


def test_a_gpu_is_written_with_its_table_its_hosts_prices_and_its_drivers_figures(
    tmp_path: Path, timer: LawTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = SimpleNamespace(name="NVIDIA H200", total_memory=150 << 30, multi_processor_count=130, major=12, minor=1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: driver)
    monkeypatch.setattr(cli, "arena_of", lambda device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(host_cli, "measure_host", measure_host_at_once)
    out = tmp_path / "mine.toml"
    code, said, error = calibrate(out, "--seconds", "0.5")
    assert (code, error) == (0, "")
    assert "What a host takes" in said
    assert said.endswith(f"{out}\n")
    gpu, sheet = load_profile(str(out)).host.gpu, LIKE.host.gpu
    assert (gpu.name, gpu.memory_bytes, gpu.multiprocessors) == ("NVIDIA H200", 150 << 30, 130)
    assert gpu.compute_capability == sheet.compute_capability, "NCCL's choices for 12.1 are not known"
    assert gpu.priced_by == "laws"
    for name in ("flops_per_s", "memory_bytes_per_s", "efficiency", "launches_ns", "ramps_ns"):
        assert getattr(gpu, name) == getattr(sheet, name)
    assert gpu.eager == dataclasses.replace(sheet.eager, call_ns=2 * sheet.eager.call_ns)
    measured = load_measured(str(out))
    assert measured is not None
    assert measured.groups[-1].name == "host of eager programs"
    assert {group.name for group in measured.groups} >= {
        "products bfloat16, law alone",
        "products bfloat16, with the table",
    }
    assert "# Not measured: bags, as in hgx_h200 times 1.50.\n[cluster.gpu.eager]" in out.read_text()
    assert {row.is_cold for row in read_table(tmp_path / "mine.parquet")} == {True}


def test_worse_families_are_left_out_and_named(
    tmp_path: Path, timer: LawTimer, monkeypatch: pytest.MonkeyPatch
) -> None:

    def harsh(*given: object, **more: object) -> object:
        return [
            dataclasses.replace(each, errors=tuple(2 + abs(error) for error in each.before))
            if each.family == "products float32"
            else each
            for each in judge(*given, **more)  # type: ignore[arg-type]
        ]

    monkeypatch.setattr(cli, "judge", harsh)
    code, said, error = calibrate(tmp_path / "a.toml", "--device", "cpu", "--seconds", "0.3", "--json")
    assert (code, error) == (0, "")
    rows = [row.operations[0] for row in read_table(tmp_path / "a.parquet")]
    assert any(isinstance(each, Product) and each.dtype == "bfloat16" for each in rows)
    assert not any(isinstance(each, Product) and each.dtype == "float32" and each.batch == 1 for each in rows)
    left = [each["family"] for each in json.loads(said)["families"] if each["is_left_out"]]
    assert "products float32" in left
    assert "left out of the table: " in (tmp_path / "a.toml").read_text()

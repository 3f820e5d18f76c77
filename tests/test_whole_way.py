"""From a scenario file to a prediction, a measurement and their comparison: what a user does first, as they do it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reports.compare.comparison import compare
from reports.store import run_folder as store
from tests.commands import command, unfold
from tests.conftest import LibraryRun

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "scenarios" / "library"
LONG = ("mlperf_dlrm", "criteo_dlrm_8x8", "criteo_dlrm_2x4_")  # the last is as `criteo_dlrm_2x4`, with a slow GPU
SCENARIOS = [
    pytest.param(
        path.stem,
        marks=[pytest.mark.slow] * path.stem.startswith(("mlperf_dlrm", "criteo_dlrm_8x8", "criteo_dlrm_2x4_")),
    )
    for path in sorted(LIBRARY.glob("*.toml"))
    if not path.stem.startswith("job_")  # days, whose tests are those of jobs
]
# Processes of one machine can hold these; the others are clusters of GPUs.
REAL = [
    pytest.param("all_to_all_4x2", marks=pytest.mark.slow),
    "criteo_small_2x2",
    pytest.param("twrw_2x2", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(params=SCENARIOS)
def predicted(request: pytest.FixtureRequest, library_run: LibraryRun) -> Path:
    """The folder of a prediction of each scenario of the library."""
    folder, done = library_run(request.param)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "step time" in done.stdout
    assert max(map(len, done.stdout.replace(str(folder), "runs/NAME-sim-20260102-030405").splitlines())) <= 80
    return folder


def test_every_scenario_of_the_library_is_predicted(predicted: Path) -> None:
    run = store.load(predicted)
    assert run.info.complete
    assert (run.steps["step_ns"] > 0).all()
    memory = run.rank_memory
    assert (memory["used_bytes"] <= memory["capacity_bytes"]).all()


def test_the_simulator_gives_the_same_bytes_twice(runs: Path) -> None:
    files = []
    for number in range(2):
        folder = runs / f"twice-{number}"
        done = command("sim", LIBRARY / "criteo_small_2x2.toml", "--out", folder, "--quiet")
        assert done.returncode == 0, done.stderr
        files.append([(folder / f"{name}.parquet").read_bytes() for name in ("spans", "metrics", "links", "plan")])
    assert files[0] == files[1]


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_prediction_and_measurement_send_the_same_in_the_same_order_and_learn_the_same(name: str, runs: Path) -> None:
    """Losses of float32 within 1e-5, relative: a ring adds in another order than the simulator does."""
    file = LIBRARY / f"{name}.toml"
    folders = runs / f"{name}-predicted", runs / f"{name}-measured"
    for room, folder in zip(("sim", "real"), folders, strict=True):
        done = command(room, file, "--out", folder, "--quiet", *(("--payload", "values") if room == "sim" else ()))
        assert done.returncode == 0, done.stderr
    comparison = compare(*map(store.load, folders))
    assert [check.name for check in comparison.checks if not check.agrees] == []
    assert all(check.compared for check in comparison.checks)
    shown = command("reports", "compare", *folders)
    assert shown.returncode == 0, shown.stderr
    assert "DIFFERENT" not in shown.stdout


def test_runs_of_different_scenarios_are_not_compared(runs: Path) -> None:
    folders = []
    for seed in (1, 2):
        folders.append(runs / f"seed-{seed}")
        done = command("sim", LIBRARY / "twrw_2x2.toml", "--seed", seed, "--out", folders[-1], "--quiet")
        assert done.returncode == 0, done.stderr
    refused = command("reports", "compare", "--any", *folders)
    assert refused.returncode == 2
    assert "seed" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_bad_file_is_sentences_and_exit_code_2_in_both_worlds(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('program = "dlrm"\n[run]\nbatch_size = -1\nstep = 3\n[cluster]\nprofile = "dgx_h10"\nhosts = 0\n')
    for room in ("sim", "real"):
        done = command(room, bad)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        assert f"{bad}: run.batch_size = -1: expected" in done.stderr
        assert f"{bad}: run.step = 3: unknown key; expected one of" in done.stderr
        assert f"{bad}: cluster.hosts = 0: expected" in done.stderr


def test_a_folder_that_is_taken_is_said_before_anything_runs(runs: Path) -> None:
    taken = runs / "taken"
    taken.mkdir()
    for room in ("sim", "real"):
        done = command(room, LIBRARY / "twrw_2x2.toml", "--out", taken)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{taken}: exists already; nothing is ever overwritten, give another folder\n"
    assert list(taken.iterdir()) == []


def test_output_that_cannot_be_written_is_one_sentence(runs: Path) -> None:
    words = [sys.executable, "-m", "sim", str(LIBRARY / "twrw_2x2.toml"), "--out", str(runs / "full")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "stdout: No space left on device\n")
    assert store.load(runs / "full").info.complete


def test_notes_say_what_a_scenario_does_not_do(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "never.toml"
    base = LIBRARY / "powersgd_16x1_10g.toml"
    changes = '[run]\nlibrary = "gloo"\n[compression]\nstart_powerSGD_iter = 9\n'
    file.write_text(f'include = "{base}"\n{changes}')
    done = command("sim", file, "--out", runs / "never", "--quiet")
    assert (done.returncode, unfold(done.stderr).splitlines()) == (
        0,
        [
            f"note: {file}: compression.start_powerSGD_iter = 9: nothing is compressed in 4 steps;"
            " to see compression, use more than 9 steps or a value from 2 to 3",
            f"note: {file}: run.library = 'gloo': with GPUs, copies to the host and sums there are not modelled;"
            " the prediction is a lower bound",
        ],
    )


def test_a_prediction_as_json_is_only_json(runs: Path) -> None:
    done = command("sim", LIBRARY / "twrw_2x2.toml", "--json", "--out", runs / "json")
    assert json.loads(done.stdout)["name"] == "twrw_2x2"

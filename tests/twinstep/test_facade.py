"""`import twinstep`: predictions, measurements and comparisons in memory, equal to what the commands store."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import twinstep
from reports.json_document import document
from reports.sections.comparison import Comparison
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.side_by_side.frames import SideBySide
from scenarios.config.overrides.short_names import OVERRIDES
from scenarios.versions import version_of
from twinstep import options
from twinstep.prediction import main

EXCHANGE = """program = "all_to_all"
cluster = {profile = "cpu_local", hosts = 2}
exchange = {size = "16 KiB"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exchange.toml"
    path.write_text(EXCHANGE)
    return path


def test_a_prediction_is_the_run_that_the_command_stores(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predicted = twinstep.predict(file, steps=2)
    assert capsys.readouterr() == ("", "")
    assert main([str(file), "--steps", "2", "--quiet", "--out", str(tmp_path / "run")]) == 0
    stored = twinstep.load(tmp_path / "run")
    assert stored.info.digest == predicted.info.digest
    pd.testing.assert_frame_equal(stored.operations, predicted.operations)
    pd.testing.assert_frame_equal(stored.links, predicted.links)


def test_a_name_a_path_and_a_scenario_are_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    by_path, by_word = twinstep.predict(file, steps=1), twinstep.predict("exchange.toml", steps=1)
    asked = twinstep.scenario(file, steps=1)
    assert asked == twinstep.scenario(file).with_run(steps=1)
    for run in (by_word, twinstep.predict(asked)):
        pd.testing.assert_frame_equal(run.spans, by_path.spans)
    assert twinstep.scenario("twrw_2x2", seed=5).run.seed == 5


def test_a_mistake_is_a_sentence(file: Path) -> None:
    with pytest.raises(twinstep.ScenarioError, match=r"^hosts = 8: cannot be overridden; expected one of steps, seed,"):
        twinstep.predict(file, hosts=8)
    with pytest.raises(twinstep.ScenarioError, match=r"^--steps = 0: expected a whole number of at least 1$"):
        twinstep.measure(file, steps=0)
    with pytest.raises(twinstep.ScenarioError, match=r"^steps=2: expected with a scenario's path or name; change"):
        twinstep.predict(twinstep.scenario(file), steps=2)
    with pytest.raises(twinstep.ReportError, match="no such run folder"):
        twinstep.load(file.parent / "none")


def test_a_measurement_needs_no_folder_and_compares_with_a_prediction(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reports.store.run_folder.PART_ROWS", 1
    )  # as of a long run, whose spans are read when asked for
    measured = twinstep.measure(file, steps=2)
    assert capsys.readouterr() == ("", "")
    assert (measured.info.world, measured.info.complete, len(measured.steps)) == ("real", True, 2)
    assert measured.span_count == len(measured.spans) > 0
    comparison = twinstep.compare(twinstep.predict(file, steps=2), measured)
    assert isinstance(comparison, Comparison)
    assert [check.name for check in comparison.checks if check.compared and not check.agrees] == []
    assert comparison.steps["step"].tolist() == [0, 1]


def test_a_measurement_is_not_for_a_rank_of_torchrun(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(twinstep.ProgramError, match=r"^twinstep.measure: expected without torchrun or srun"):
        twinstep.measure(file)


def test_the_release_is_the_installed_package_s() -> None:
    assert twinstep.__version__ == version_of("twinstep")
    assert version_of("no-such-package-there-is") == "not installed"


def test_importing_it_takes_less_than_50_ms() -> None:
    code = "import time; began = time.process_time(); import twinstep; print(time.process_time() - began)"
    taken_s = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(taken_s) < 0.05


def test_a_step_is_marked_without_torch_and_nothing_comes_of_it_where_no_script_is_run() -> None:
    """So a script that marks its steps runs under plain torchrun."""
    code = "import sys, twinstep; print(twinstep.step(), twinstep.step(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None None False\n"


def test_scalars_of_a_run_are_those_of_its_tables() -> None:
    run = twinstep.predict("criteo_dlrm_2x4", steps=2)
    shown = document(RUN, RunView.of(run))
    assert run.step_ms == shown["median_step_ns"] / 1e6
    assert run.samples_per_s == shown["samples_per_s"]
    assert run.usd_per_1e9 == shown["usd_per_1e9_samples"] > 0
    assert run.uncertainty == shown["uncertainty"]["share"] > 0
    assert run.fits is True


def test_scalars_of_a_program_that_trains_nothing_are_unknown(file: Path) -> None:
    run = twinstep.predict(file, steps=1)
    assert run.step_ms > 0
    assert math.isnan(run.samples_per_s)
    assert math.isnan(run.usd_per_1e9)


def test_two_predictions_are_compared_side_by_side(file: Path) -> None:
    slow, fast = (twinstep.predict(file, steps=1, **{"cluster.nic.rate": rate}) for rate in ("1 Gbit/s", "100 Gbit/s"))
    found = twinstep.compare(slow, fast)
    assert isinstance(found, SideBySide)
    assert found.names == ["exchange", "exchange (2)"]
    assert found.settings["key"].unique().tolist() == ["cluster.nic.rate"]
    assert found.results["step_change"].iloc[1] == pytest.approx(fast.step_ms / slow.step_ms - 1)
    assert "cluster.nic.rate" in repr(found)


def test_a_report_of_a_run_in_memory_and_of_a_folder_is_one_page(file: Path, tmp_path: Path) -> None:
    page = twinstep.report(twinstep.predict(file, steps=1), tmp_path / "memory")
    assert page == tmp_path / "memory" / "report.html"
    assert main([str(file), "--steps", "1", "--quiet", "--out", str(tmp_path / "run")]) == 0
    stored = twinstep.report(tmp_path / "run")
    assert stored == tmp_path / "run" / "reports" / "report.html"
    assert (page.parent / "tables" / "steps.csv").read_text() == (stored.parent / "tables" / "steps.csv").read_text()


def test_ready_scenarios_and_profiles_are_frames() -> None:
    scenarios, profiles = twinstep.scenarios(), twinstep.profiles()
    ready, host = scenarios.to_dict("index")["criteo_dlrm_2x4"], profiles.to_dict("index")["dgx_h100"]
    assert (ready["program"], ready["hosts"], ready["gpus_per_host"]) == ("dlrm", 2, 4)
    assert (host["gpus"], host["nics"], host["nic_bytes_per_s"]) == (8, 8, 50e9)
    assert scenarios["description"].str.len().min() > 0


def test_an_unknown_name_suggests_a_known_one() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'predct'") as found:
        twinstep.predct  # type: ignore[attr-defined]  # noqa: B018
    assert (found.value.name, found.value.obj) == ("predct", twinstep)  # with which Python says "Did you mean"


def test_overrides_are_named_for_completion() -> None:
    assert {*OVERRIDES} == {*options.OVERRIDES}
    for function in (
        twinstep.predict,
        twinstep.measure,
        twinstep.scenario,
        twinstep.curves,
        twinstep.plan,
        twinstep.what_if,
    ):
        *_, last = named = list(inspect.signature(function).parameters.values())
        keys = [one.name for one in named if one.kind is inspect.Parameter.KEYWORD_ONLY]
        assert keys[-len(OVERRIDES) :] == [*OVERRIDES]
        assert last.kind is inspect.Parameter.VAR_KEYWORD


def test_changes_are_those_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "exchange.toml"
    file.write_text(EXCHANGE)
    run = twinstep.what_if(file, steps=1)
    assert main([str(file), "--steps", "1", "--what-if", "--quiet", "--out", str(tmp_path / "run")]) == 0
    pd.testing.assert_frame_equal(run.what_if, twinstep.load(tmp_path / "run").what_if)
    assert run.what_if["change"].iloc[0] == "as it is"
    assert len(run.what_if) > 1
    with pytest.raises(twinstep.ScenarioError, match=r"^stps = 2: cannot be overridden"):
        twinstep.what_if(file, stps=2)


def test_a_plan_is_the_fastest_and_predicts_the_same_step(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    found = twinstep.plan("twrw_2x2", out=out, seconds=30, steps=1)
    assert found.best.step_ns == min(one.step_ns for one in found.plans)
    assert out.read_text() == found.best_json
    again = twinstep.predict("twrw_2x2", steps=1, **{"sharding.plan": str(out)})
    assert again.step_ms == found.best.step_ns / 1e6
    assert repr(found).startswith("TorchRec's planner ")
    with pytest.raises(twinstep.ReportError, match="exists already"):
        twinstep.plan("twrw_2x2", out=out)
    with pytest.raises(twinstep.ScenarioError, match="expected one with tables to place"):
        twinstep.plan("all_to_all_4x2")

"""Changes are proposed where a program and its scenario can have them, and each that ends is kept."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

import twinstep
from reports.study.measures import gain_of, measures_of
from scenarios.config.catalogue import library_files
from scenarios.config.load import load
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.toml.include import read_tree
from scenarios.seam.errors import ScenarioError
from tests.commands import command
from tests.small import recommender
from twinstep.prediction import main
from twinstep.studies.play import play_point
from twinstep.studies.task import Result, Speeds, Task
from twinstep.what_ifs.counterfactuals import Counterfactual, counterfactuals
from twinstep.what_ifs.what_if import DRAWS, WhatIf

ROOT = Path(__file__).parents[3]
FILE = ROOT / "tests" / "data" / "real_world.toml"
ON = {
    "cpu_local": 'cluster = {profile = "cpu_local", hosts = 2, gpus_per_host = 2}\n',
    "dgx_h100": 'cluster = {profile = "dgx_h100", hosts = 2, gpus_per_host = 2}\n',
    "alone": 'cluster = {profile = "dgx_h100", hosts = 1, gpus_per_host = 1}\n',
}
PROGRAMS = {
    "all_to_all": 'exchange = {size = "1 MiB"}\n',
    "collective": 'collective = {op = "all_reduce", size = "1 MiB"}\n',
    "powersgd": "gradients.shapes = [[64, 64], [64]]\n",
    "./own.py:make": "run.batch_size = 8\n",
}
OWN = """from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program


class Own(Program):
    def __init__(self, scenario):
        self.steps = scenario.steps

    async def __call__(self, rank):
        for index in range(self.steps):
            with rank.step(index):
                await rank.compute(Kernel(label="own", kind="gemm", flops=1e9, bytes_read=1e6, bytes_written=1e6))


def make(scenario):
    return Own(scenario)
"""
READ = 'name = "read"\nrows = 100\nids = {file = "ids.csv"}\n'
OF_FEATURES = """name = "of_features"
rows = 100
features = [{name = "a", ids_per_sample = 2, ids = {zipf = 1.1}}, {name = "b", ids_per_sample = 3}]
"""


def refuse(file: Path) -> list[str]:
    """Return the proposals that the scenario cannot have."""
    scenario, tree = load(file), read_tree(str(file), Overrides({})).tree
    what_if = WhatIf(load=lambda values: load(file, values), plan={}, places={}, draws=0, gain=lambda _: (1, 1, 1))
    proposed = counterfactuals(scenario, tree)
    assert proposed
    accepted = {one.name for one in what_if.changes(scenario, tree)}
    return [one.name for one in proposed if one.name not in accepted]


@pytest.mark.parametrize("file", library_files(), ids=lambda file: file.stem)
def test_a_ready_scenario_accepts_each_change_that_is_proposed(file: Path) -> None:
    assert refuse(file) == []


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.stem)
def test_an_example_accepts_each_change_that_is_proposed(file: Path) -> None:
    if file.stem != "study":
        assert refuse(file) == []


@pytest.mark.parametrize("cluster", ON)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_offered_no_key_that_it_does_not_have(program: str, cluster: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    file = tmp_path / "program.toml"
    file.write_text(f'program = "{program}"\n{ON[cluster]}{PROGRAMS[program]}')
    assert refuse(file) == []
    names = {one.name for one in counterfactuals(load(file), read_tree(str(file), Overrides({})).tree)}
    assert "twice the batch per rank" not in names
    if (program, cluster) == ("powersgd", "dgx_h100"):  # the quickest of those that compute
        done = command("sim", file, "--what-if", "--json", "--out", tmp_path / "run")
        assert done.returncode == 0, done.stderr
        assert {row["status"] for row in json.loads(done.stdout)["what_if"]} == {"done"}


def test_ids_of_a_file_are_drawn_evenly_with_as_many_in_a_bag(tmp_path: Path) -> None:
    file = tmp_path / "file_ids.toml"
    (tmp_path / "ids.csv").write_text("1 2 3\n4\n")
    file.write_text(recommender(READ, OF_FEATURES, batch_size=8, profile="cpu_local"))
    assert refuse(file) == []
    changes = {one.name: one for one in counterfactuals(load(file), read_tree(str(file), Overrides({})).tree)}
    values = changes["no skew of ids"].values
    assert values == {
        "model.tables[0].ids": "uniform",
        "model.tables[1].features[0].ids": "uniform",
        "model.tables[0].ids_per_sample": {"mean": 2.0},
    }
    made = load(file, values)
    assert (made.workload.tables[0].ids.kind, made.workload.tables[0].ids_per_sample) == (
        "uniform",
        2.0,
    )


def test_an_interrupted_command_goes_on_with_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, run = tmp_path / "program.toml", tmp_path / "run"
    file.write_text(f'program = "powersgd"\n{ON["dgx_h100"]}{PROGRAMS["powersgd"]}')
    played: list[Task] = []

    def play(task: Task) -> Result:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(task)
        return play_point(task)

    monkeypatch.setattr("twinstep.what_ifs.what_if.play_point", play)
    stopped = command("sim", file, "--what-if", "--json", "--out", run)
    kept = twinstep.load(run).what_if
    known = (kept["status"] == "done").to_numpy(bool)
    assert stopped.returncode == 130
    assert json.loads(stopped.stdout)["what_if"][-1]["status"] == "not tried"
    assert stopped.stderr == f"{run}: interrupted; the command with --out {run} goes on\n"
    assert list(known) == [True] * 3 + [False] * (len(kept) - 3)
    assert set(kept["sentence"][~known]) == {"interrupted"}
    other = command("sim", file, "--what-if", "--steps", "2", "--out", run)
    assert (other.returncode, "exists already" in other.stderr) == (2, True)  # another scenario's run
    monkeypatch.setattr("twinstep.what_ifs.what_if.play_point", lambda task: [played.append(task), play_point(task)][1])
    gone_on = command("sim", file, "--what-if", "--json", "--out", run)
    assert gone_on.returncode == 0, gone_on.stderr
    whole = twinstep.load(run).what_if
    assert len(played) == len(whole) - 1 == len(kept) - 1  # none twice
    assert whole.iloc[:3].equals(kept.iloc[:3])
    assert json.loads(gone_on.stdout)["what_if"][0]["change"] == "as it is"


def test_the_second_of_two_commands_that_add_changes_to_a_run_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the first one plays the changes of a run that it has just written, or goes on with them."""
    run, said = tmp_path / "run", []
    words = [str(FILE), "--what-if", "--out", str(run)]

    def change(*_: object) -> NoReturn:
        with monkeypatch.context() as other:
            other.setattr("twinstep.prediction_job.plan_job", lambda *_: pytest.fail("it has begun"))
            assert main(words) == 2
        said.append(capsys.readouterr().err.splitlines()[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr("twinstep.prediction_job._change", change)
    for _ in range(2):
        assert main(words) == 130
    assert said == [f"{run}: another process is writing it; give another folder"] * 2
    assert os.listdir(tmp_path) == ["run"]


def test_ctrl_c_before_the_first_change_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(list[Counterfactual]):
        def __iter__(self) -> NoReturn:
            raise KeyboardInterrupt

    monkeypatch.setattr(WhatIf, "changes", lambda *_: Interrupted())
    run = tmp_path / "run"
    assert main([str(FILE), "--what-if", "--out", str(run)]) == 130
    assert capsys.readouterr().err == f"{run}: interrupted; the command with --out {run} goes on\n"


def test_changes_that_are_left_when_time_is_over_are_named(tmp_path: Path) -> None:
    file, run = tmp_path / "program.toml", tmp_path / "run"
    file.write_text(f'program = "powersgd"\n{ON["dgx_h100"]}{PROGRAMS["powersgd"]}')
    done = command("sim", file, "--what-if", "--seconds", "1e-9", "--out", run)
    assert done.returncode == 0, done.stderr
    left = twinstep.load(run).what_if.iloc[1:]
    assert set(left["status"]) == {"not tried"}
    assert f"not tried (stopped after 1e-09 s, --seconds): {', '.join(left['change'])}" in " ".join(done.stdout.split())
    alone = command("sim", file, "--seconds", 5, "--out", run)
    assert (alone.returncode, alone.stderr) == (2, "--seconds: expected with --what-if, whose changes it limits\n")


def test_changes_that_take_least_to_simulate_come_first() -> None:
    cheap = Counterfactual(name="a kernel", group="setting", replays=True)
    other = Counterfactual(name="a link", group="hardware")
    larger = Counterfactual(name="a batch", group="setting", takes_memory=True)
    search = Counterfactual(name="a plan", group="setting", values={"sharding.choose": "simulated"})
    assert [one.effort for one in (cheap, other, larger, search)] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_change_that_the_scenario_cannot_have_is_left_out() -> None:
    def load_none(values: Mapping[str, object]) -> NoReturn:
        raise ScenarioError("changed.toml: refused")

    what_if = WhatIf(load=load_none, plan={}, places={}, draws=0, gain=lambda _: (1, 1, 1))
    assert what_if.play(Counterfactual(name="a change", group="setting", values={}, takes_memory=True)) is None


def test_a_gain_that_is_noise_of_gloo_has_an_interval_with_both_signs() -> None:
    """Steps of 22 to 44 ms by small shifts: draw 0 alone would call perfectly balanced work a gain or a loss."""
    given = {"cluster.profile": "emulated_200mbit", "run.steps": 6}

    def speeds(values: Mapping[str, object]) -> Speeds:
        scenario = load("twrw_2x2", {**given, **values})
        task = Task(scenario=scenario, fidelity="flows", timeout_s=math.inf, keep="rows", draws=DRAWS)
        result = play_point(dataclasses.replace(task, measures_draw_0=True))
        assert result.status == "done", result.sentence
        assert len(result.speeds) == 1 + DRAWS
        assert result.measures["step_ns"] == measures_of(twinstep.predict(scenario))["step_ns"]
        return result.speeds

    base = speeds({})
    steps_ms = [1e3 * 4 * 4 / one for one in base[0]]
    assert max(steps_ms) > 1.5 * min(steps_ms)
    _, low, high = gain_of(base, speeds({"run.balanced": True}))
    assert low < 1 < high
    _, low, high = gain_of(base, speeds({"cluster.tcp.spin_share": 0.0}))
    assert low > 1.2  # what shifts them

"""A program of one's own: no product file knows of it, and it is predicted, run and checked like ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import pytest

from reports.store import run_folder
from scenarios.config.load import load
from scenarios.config.scenario import Workload
from scenarios.workloads import locate
from scenarios.workloads.build import build
from sim.run import simulate
from tests.commands import command
from tests.scenarios.workloads.own import sentences, write_scenario

ROOT = Path(__file__).parents[3]
MINE = """
import torch
from scenarios.config.toml.section import Section
from scenarios.seam.program import Program

class MyStep(Program):
    class Options(Section):
        elements: int
        rounds: int = 1

    def __init__(self, scenario):
        self.steps, self.options = scenario.steps, scenario.options

    async def __call__(self, rank):
        for step in range(self.steps):
            with rank.step(step):
                for _ in range(self.options.rounds):
                    mine = torch.full((self.options.elements,), float(rank.rank), device=rank.device)
                    rank.record("first", (await rank.all_reduce(mine))[0])

class Loose(MyStep):
    Options = None

def wrong(scenario):
    return 7

NUMBER = 7
"""
OPTIONS = "[options]\nelements = 4"


@pytest.fixture(autouse=True)
def forget_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports is forgotten after it, and where it was found."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("mine", "my_step"):
            del sys.modules[name]


def write(folder: Path, program: str = "mine:MyStep", *, further: str = OPTIONS, code: str = MINE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(code)
    return write_scenario(folder, program=program, further=further, run=', payload = "values", timeout = "60 s"')


def sentence(path: Path) -> str:
    (only,) = sentences(path)
    return only


def test_a_program_in_the_scenarios_folder_is_predicted(tmp_path: Path) -> None:
    scenario = load(write(tmp_path))
    assert (scenario.program, scenario.options.elements, scenario.options.rounds) == ("mine:MyStep", 4, 1)
    assert scenario.as_dict()["options"] == {"elements": 4, "rounds": 1}
    recording = simulate(scenario, build(scenario))
    assert [metric.value for metric in recording.metrics] == [1.0] * 4  # ranks 0 and 1, two steps of each
    assert (recording.plan, recording.memory) == ([], [])


def test_every_field_of_a_workload_of_ones_own_changes_the_digest() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Phases(Workload):
        warm_up: int

    scenario = load(ROOT / "scenarios" / "library" / "all_to_all_4x2.toml")
    one, other = (replace(scenario, workload=Phases(warm_up=steps)) for steps in (1, 2))
    assert (one.as_dict()["warm_up"], one.as_dict()["model"]) == (1, None)
    assert one.digest() != other.digest()


PHASES = (
    MINE
    + """
from dataclasses import dataclass
from typing import Annotated
from scenarios.config.keys import OnlyWith
from scenarios.config.scenario import Workload
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable

@dataclass(frozen=True, kw_only=True)
class Phase:
    kind: Annotated[str, "Its kind. Default 'short'."] = "short"
    rounds: Annotated[int, "Its rounds. Default 1.", OnlyWith(kind=("long",))] = 1

@dataclass(frozen=True, slots=True, kw_only=True)
class Phases(Workload):
    first: Phase
    last: Phase

TABLES = [ScenarioTable(key=f"{name}_phase", field=name, values=Phase, about="A phase.") for name in ("first", "last")]
SPEC = ProgramSpec(factory="mine:MyStep", workload=Phases, needs=TABLES[0], may=(TABLES[1],))
"""
)


def test_a_spec_of_ones_own_makes_its_workload_of_its_tables(tmp_path: Path) -> None:
    phase = "[first_phase]\nrounds = 2\n"
    made = load(write(tmp_path, "mine:SPEC", further=f"{phase}kind = 'long'", code=PHASES))
    assert (made.program, made.as_dict()["first"]) == ("mine:SPEC", {"kind": "long", "rounds": 2})
    assert (made.as_dict()["last"], made.workload.plans) == ({"kind": "short", "rounds": 1}, "")
    path = write(tmp_path, "mine:SPEC", further=phase, code=PHASES)
    assert sentence(path) == "first_phase.rounds = 2: expected no rounds but with kind = 'long'"


@pytest.mark.parametrize(
    ("before", "now", "wrong"),
    [
        ("    last: Phase\n", "", "got an unexpected keyword argument 'last'"),
        ("    last: Phase\n", "    last: Phase\n    third: int\n", "missing a required argument: 'third'"),
    ],
)
def test_a_spec_whose_workload_has_other_fields_is_a_sentence(
    tmp_path: Path, before: str, now: str, wrong: str
) -> None:
    path = write(tmp_path, "mine:SPEC", code=PHASES.replace(before, now))
    expected = f"expected a workload with a field for each of its tables, but Phases: {wrong}"
    assert sentence(path) == f"program = 'mine:SPEC': {expected}"


@pytest.mark.real
def test_a_program_in_the_scenarios_folder_runs_on_real_ranks(tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "run"
    done = command("real", path, "--out", out, "--quiet")
    assert done.returncode == 0, done.stderr
    real = run_folder.load(out)
    simulated = simulate(load(path), build(load(path)))
    assert real.info.digest == simulated.info.digest
    assert real.metrics["value"].tolist() == [1.0] * 4


def test_without_options_of_its_own_it_is_given_what_the_file_says(tmp_path: Path) -> None:
    options = load(write(tmp_path, "mine:Loose", further="[options]\nelements = 3\nrounds = 2\nname = 'x'")).options
    assert (options.elements, options.rounds, options.name) == (3, 2, "x")


def test_an_entry_point_gives_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = metadata.EntryPoint("my_step", "mine:MyStep", locate.ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints([entry]))
    scenario = load(write(tmp_path, "my_step"))
    assert scenario.program == "my_step"
    assert len(simulate(scenario, build(scenario)).metrics) == 4
    path = write(tmp_path, "my_stop")
    expected = (
        "'dlrm', 'all_to_all', 'collective', 'powersgd', 'script', 'recording', 'chakra', 'given_step' or 'my_step'"
    )
    assert sentence(path) == f"program = 'my_stop': expected {expected}"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("no_such.module:make", "a module that can be imported, but there is no module no_such.module"),
        ("mine:Absent", "a program in mine, but module 'mine' has no attribute 'Absent'"),
        ("mine:NUMBER", "a function that makes a program of a scenario, but mine:NUMBER is a int"),
        ("mine:", "'package.module:factory' or './file.py:factory'"),
        ("yours.py:MyStep", "a file of Python that is there, but there is no /"),
        ("mine:wrong", "a function that returns a scenarios.seam.program.Program, but it returns a int"),
        ("mine", "'dlrm', 'all_to_all', 'collective', 'powersgd', 'script', 'recording', 'chakra' or 'given_step'"),
    ],
)
def test_a_program_that_is_none_is_a_sentence(tmp_path: Path, program: str, expected: str) -> None:
    assert sentence(write(tmp_path, program)).startswith(f"program = '{program}': expected {expected}")


def test_missing_options_are_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, further="")
    assert sentence(path) == "options: missing; expected a table, because program = 'mine:MyStep'"


def test_a_module_that_raises_is_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, code="raise RuntimeError('not\\ntoday')")
    raised = f"importing mine raised RuntimeError: not today (at {tmp_path / 'mine.py'}:1)"
    assert sentence(path) == f"program = 'mine:MyStep': expected a module that can be imported, but {raised}"


def test_two_modules_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    load(write(tmp_path / "first"))
    path = write(tmp_path / "second")
    assert f"mine is {tmp_path / 'first' / 'mine.py'}, not {path.with_name('mine.py')}" in sentence(path)


def test_options_are_no_key_of_our_programs(tmp_path: Path) -> None:
    path = write(tmp_path, "all_to_all", further=f"{OPTIONS}\n[exchange]\nsize = '1 MiB'")
    assert sentence(path).startswith("options = {elements = 4}: unknown key; expected one of name, ")


def test_the_documented_program_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/scenario.md").read_text().partition("## Your own program")[2]
    code, file = (page.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "toml"))
    (tmp_path / "train_step.py").write_text(code)
    (tmp_path / "my.toml").write_text(file)
    scenario = load(tmp_path / "my.toml")
    spans = simulate(scenario, build(scenario)).spans
    assert sum(span.kind == "all_reduce" for span in spans) == scenario.run.steps * scenario.cluster.world_size
    assert {span.bytes_in for span in spans if span.kind == "all_reduce"} == {4_000_000}

"""The files of a program of one's own travel with the scenario: which they are, and what they change."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from reports.store import run_folder
from reports.writer import write
from scenarios.config.load import load
from scenarios.workloads.build import build
from sim.run import simulate
from tests.scenarios.workloads.own import sentences, train, write_scenario

BESIDE = "from layers.dense import ELEMENTS\nimport extra, json, torch"


def program(folder: Path, elements: int = 4) -> Path:
    """A program that imports a package and a module beside it; a further module is nobody's."""
    path = write_scenario(folder, train(BESIDE))
    (folder / "layers").mkdir(exist_ok=True)
    (folder / "layers/__init__.py").write_text("")
    (folder / "layers/dense.py").write_text("from .sizes import ELEMENTS\n")
    (folder / "layers/sizes.py").write_text(f"ELEMENTS = {elements}\n")
    (folder / "extra.py").write_text("")
    (folder / "unused.py").write_text("")
    return path


def test_the_programs_files_are_those_that_it_imports_from_its_folder(tmp_path: Path) -> None:
    names = [source.name for source in load(program(tmp_path)).sources]
    assert names == ["extra.py", "layers/__init__.py", "layers/dense.py", "layers/sizes.py", "train_step.py"]


def test_an_edit_is_another_program_and_is_run(tmp_path: Path) -> None:
    first = load(program(tmp_path))
    assert load(tmp_path / "my.toml").digest() == first.digest()
    assert {span.bytes_in for span in simulate(first, build(first)).spans if span.kind == "all_reduce"} == {16}
    second = load(program(tmp_path, elements=5))
    assert second.digest() != first.digest()
    assert {span.bytes_in for span in simulate(second, build(second)).spans if span.kind == "all_reduce"} == {20}
    (tmp_path / "unused.py").write_text("x = 1")
    assert load(tmp_path / "my.toml").digest() == second.digest()


def test_two_files_of_one_name_with_modules_of_one_name_are_two_programs(tmp_path: Path) -> None:
    paths = [program(tmp_path / name, elements) for name, elements in (("first", 4), ("second", 5), ("third", 6))]
    made = [build(load(path)) for path in (*paths, paths[0])]
    sizes = [
        {span.bytes_in for span in simulate(load(path), one).spans if span.kind == "all_reduce"}
        for path, one in zip((*paths, paths[0]), made, strict=True)
    ]
    assert sizes == [{16}, {20}, {24}, {16}]


def test_a_module_that_python_has_already_is_not_taken_for_the_one_beside(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, train("import textwrap\nELEMENTS = 4"))
    (tmp_path / "textwrap.py").write_text("")
    (sentence,) = sentences(path)
    assert "a module whose name is not taken, but textwrap is " in sentence


def test_a_module_that_python_finds_has_its_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package/__init__.py").write_text("")
    (tmp_path / "own_package/sizes.py").write_text("ELEMENTS = 4")
    (tmp_path / "own_package/step.py").write_text(train("from own_package.sizes import ELEMENTS"))
    monkeypatch.syspath_prepend(tmp_path)
    scenario = load(write_scenario(tmp_path / "scenarios", program="own_package.step:Train"))
    assert [source.name for source in scenario.sources] == [
        "own_package/__init__.py",
        "own_package/sizes.py",
        "own_package/step.py",
    ]


def test_an_absolute_path_and_a_file_that_includes_the_scenario(tmp_path: Path) -> None:
    path = program(tmp_path / "programs")
    absolute = write_scenario(tmp_path / "scenarios", program=f"{path.with_name('train_step.py')}:Train")
    assert len(load(absolute).sources) == 5
    including = tmp_path / "including.toml"
    including.write_text("name = 'x'\ninclude = 'programs/my.toml'\n")
    scenario = load(including)
    assert len(simulate(scenario, build(scenario)).spans) == 8


def test_ours_have_none() -> None:
    scenario = load("all_to_all_4x2")
    assert scenario.sources == ()
    assert "sources" not in scenario.as_dict()


def test_a_run_folder_keeps_the_files(tmp_path: Path) -> None:
    scenario = load(program(tmp_path / "own"))
    folder = write(simulate(scenario, build(scenario)), tmp_path / "run")
    kept = sorted(path.relative_to(folder / "sources").as_posix() for path in (folder / "sources").rglob("*.py"))
    assert kept == [source.name for source in scenario.sources]
    assert (folder / "sources/layers/sizes.py").read_text() == "ELEMENTS = 4\n"
    assert run_folder.load(folder).info.scenario["sources"]["extra.py"] == scenario.sources[0].sha256


def test_reading_a_scenario_of_our_own_loads_no_torch() -> None:
    code = (
        "import sys\nfrom scenarios.config.load import load\nload('all_to_all_4x2')\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_process_that_only_unpickles_the_scenario_finds_the_program(tmp_path: Path) -> None:
    above = "from dataclasses import dataclass\nELEMENTS = 4\n@dataclass\nclass S:\n    x: int = 3"
    path = write_scenario(tmp_path, train(above, "Options = S"))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).options.x)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(load(path)), check=True, capture_output=True)
    assert done.stdout == b"3\n"


@pytest.mark.slow
@pytest.mark.real
def test_real_ranks_run_the_file_and_comparing_with_other_code_names_it(tmp_path: Path) -> None:
    path = program(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)

    assert run("real", str(path), "--out", "real", "--quiet").returncode == 0
    assert run("sim", str(path), "--out", "sim", "--quiet").returncode == 0
    assert run("reports", "compare", "sim", "real").returncode == 0
    program(tmp_path, elements=5)
    assert run("sim", str(path), "--out", "other", "--quiet").returncode == 0
    refused = run("reports", "compare", "other", "real")
    assert refused.stderr.strip() == (
        "runs of different scenarios, 'my' and 'my'; they differ in the program's file layers/sizes.py"
    )

"""What a user's code does wrong is one sentence with its file and line, whichever world runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.seam.errors import ProgramError, is_installed, package_of
from scenarios.workloads.build import build
from scenarios.workloads.script.users_lines import is_users_file
from sim.run import simulate
from tests.scenarios.workloads.own import sentences, stepless, train, write_scenario

NAMED = "program = './train_step.py:Train': expected "


def predict(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sim", path.name]
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parent, check=False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def (", "a module that can be imported, but importing train_step.py raised SyntaxError: {} (at {file}:1)"),
        (
            "import nowhere",
            "a module that can be imported, but importing train_step.py raised ModuleNotFoundError: No module named"
            " 'nowhere' (at {file}:1)",
        ),
        ("x = 1", "a program in ./train_step.py, but module './train_step.py' has no attribute 'Train'"),
    ],
)
def test_a_file_without_a_program(tmp_path: Path, code: str, expected: str) -> None:
    path = write_scenario(tmp_path, code)
    (sentence,) = sentences(path)
    shown = NAMED + expected.replace("{file}", str(tmp_path / "train_step.py"))
    before, _, after = shown.partition("{}")  # what Python's parser says
    assert sentence.startswith(before)
    assert sentence.endswith(after)


def test_exceptions_of_a_constructor_show_only_the_users_lines(tmp_path: Path) -> None:
    above = "ELEMENTS = 4\ndef helper(scenario):\n    return scenario.options.absent"
    path = write_scenario(tmp_path, train(above).replace("self.scenario = ", "self.scenario = helper(scenario) or "))
    first, *lines = sentences(path)[0].splitlines()
    place = f"{tmp_path / 'train_step.py'}:7"
    assert first == (
        f"{NAMED}a program made of the scenario, but Train raised AttributeError: 'FreeOptions' object has no"
        f" attribute 'absent' (at {place})"
    )
    assert [line.split(",")[0].strip() for line in lines if line.lstrip().startswith("File")] == (
        [f'File "{tmp_path / "train_step.py"}"'] * 2
    )


def test_a_class_without_call_is_no_program(tmp_path: Path) -> None:
    (sentence,) = sentences(write_scenario(tmp_path, train().replace("__call__", "call")))
    assert sentence.startswith(f"{NAMED}a program made of the scenario, but Train raised TypeError: Can't instantiate")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("    async def __call__", "    def __call__", None),  # a plain function cannot await: a SyntaxError
        (
            "await rank.all_reduce",
            "rank.all_reduce",
            "rank 0: all_reduce on stream main in step 0 was issued but never awaited",
        ),
        (
            "                await rank",
            "                yield rank",
            "rank 0: Train.__call__ returned an async generator, expected 'async def __call__(self, rank)'",
        ),
        (
            "    async def __call__(self, rank):",
            "    def __call__(self, rank):\n        return self.play\n    async def play(self, rank):",
            "rank 0: Train.__call__ returned a method, expected 'async def __call__(self, rank)'",
        ),
        (
            "    async def __call__(self, rank):",
            "    async def __call__(self, rank):\n        return self.play(rank)\n    async def play(self, rank):",
            "rank 0: Train.__call__ returned a coroutine that nobody awaited, expected 'await' before Train.play",
        ),
    ],
)
def test_a_call_that_is_no_coroutine(tmp_path: Path, old: str, new: str, sentence: str | None) -> None:
    path = write_scenario(tmp_path, train().replace(old, new))
    if sentence is None:
        assert "SyntaxError: 'await' outside async function" in sentences(path)[0]
        return
    scenario = load(path)
    program = build(scenario)
    with pytest.raises(ProgramError) as caught:
        simulate(scenario, program)
    assert str(caught.value) == sentence


def test_alike_needs_host_classes(tmp_path: Path) -> None:
    run = ', library = "nccl", fidelity = "links"'
    path = write_scenario(tmp_path, train(), run=run)
    path.write_text(path.read_text().replace("cpu_local", "dgx_h100"))
    (sentence,) = sentences(path, ranks="alike")
    assert sentence.startswith("run.ranks = 'alike': expected 'each', because program './train_step.py:Train' sets no")
    uniform = "self.steps = scenario.steps; self.host_classes = uniform_host_classes(scenario)\n        self.steps"
    above = "from scenarios.config.host_classes import uniform_host_classes\nELEMENTS = 4"
    (tmp_path / "train_step.py").write_text(train(above).replace("self.steps", uniform, 1))
    scenario = load(path, {"ranks": "alike"})
    program = build(scenario)
    assert program.host_classes is not None
    assert {span.rank for span in simulate(scenario, program).spans} == {0}


def test_the_commands_say_it_in_one_line_and_exit_as_for_ours(tmp_path: Path) -> None:
    path = write_scenario(
        tmp_path, train("ELEMENTS = 4").replace("with rank", "raise KeyError('no key')\n            with rank")
    )
    done = predict(path)
    place = f"{tmp_path / 'train_step.py'}:14"
    assert (done.returncode, done.stderr) == (1, f"rank 0 raised KeyError: 'no key' (at {place})\n")


def test_a_run_without_steps_says_how_to_enter_one(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, stepless())
    done = predict(path)
    assert "no rank completed a step; the program enters none: expected 'with rank.step(index):'" in (
        " ".join(done.stdout.split())
    )


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])  # dist-packages: Debian, NVIDIA's containers
def test_installed_packages_are_not_the_users_code(folder: str) -> None:
    installed, own = f"/usr/local/lib/python3.12/{folder}/torch/nn/modules/linear.py", "/home/me/torch/train.py"
    assert (package_of(installed), is_users_file(installed), is_installed(installed)) == ("torch", False, True)
    assert (package_of(own), is_users_file(own), is_installed(own)) == ("", True, False)

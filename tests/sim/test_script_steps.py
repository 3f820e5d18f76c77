"""What is a step of a script, and that a run without steps is an error which says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import twinstep
from reports.store import run_folder as store
from scenarios.seam.errors import ProgramError
from scenarios.workloads.build import build
from sim.run import simulate
from tests.commands import command
from tests.sim.test_script import ROOT

HEAD = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 4)
def backward():
    model(torch.ones(2, 4)).sum().backward()
def by_hand():
    for each in model.parameters():
        dist.all_reduce(each.grad)
        each.data -= 0.1 * each.grad
        each.grad = None
"""
ONE_STEP = (
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\ndist.all_reduce(torch.ones(9))\nbackward()\n"
    "for each in model.parameters():\n    dist.all_reduce(each.grad)\noptimizer.step()\n"
)
SERVES = (
    "whole = torch.nn.Sequential(model, torch.nn.ReLU())\nfor _ in range(4):\n"
    "    with torch.no_grad():\n        whole(torch.ones(2, 4))\n    dist.all_reduce(torch.ones(9))\n"
)
BY_HAND = "for _ in range(7):\n    backward()\n    by_hand()\n"


def script(folder: Path, body: str, head: str = HEAD) -> Path:
    (file := folder / "train.py").write_text(head.lstrip() + body)
    return file


def run(
    folder: Path, file: Path, *words: str, profile: str = "emulated_200mbit", steps: int = 3
) -> CompletedProcess[str]:
    """Play it into the folder "sim" there, on 2 ranks of a host."""
    given = ("--hosts", 1, "--gpus-per-host", 2, "--profile", profile, "--steps", steps, "--out", folder / "sim")
    return command("sim", *given, *words, file)


NO_GPUS = "if torch.cuda.device_count() < 2:\n    print('Unable to find 2 GPUs')\n    sys.exit()\n"
NOTHING = "no step of an optimizer, no backward pass and no call of torch.distributed"
ARGUMENTS = (
    "expected arguments (behind the script) and data with which it trains, --step-every forward where it only runs"
    " modules, or twinstep.step() at the end of each step, where no optimizer steps"
)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("x = 1\n", f"the script ended at its last line, after {NOTHING}; {ARGUMENTS}"),
        (NO_GPUS, rf"the script ended by sys.exit in {{file}}:16, after {NOTHING}; {ARGUMENTS}"),
        ("dist.barrier()\nos._exit(0)\n", f"ended by os._exit in train.py:15, after 1 call of barrier; {ARGUMENTS}"),
        (BY_HAND, r"the script ended at its last line, after 7 backward passes and 14 calls of all_reduce; expected"
            " --step-every backward, or twinstep.step() at the end of each step, where no optimizer steps"),
        ("for _ in range(7):\n    dist.all_reduce(torch.ones(9))\n", r"after 7 calls of all_reduce; expected"
            " --step-every all_reduce, or twinstep.step() at the end of each step"),
        ("backward()\ntorch.optim.SGD(model.parameters(), lr=0.1).step()\n", r"after 1 step of SGD and 1 backward pass;"
            " expected at least two steps of the first optimizer"),
    ],
    ids=["nothing", "sys.exit", "os._exit", "by hand", "calls", "one step"],
)  # fmt: skip
def test_a_run_without_a_step_is_an_error(body: str, sentence: str, tmp_path: Path) -> None:
    file = script(tmp_path, body)
    done = run(tmp_path, file)
    assert done.returncode == 1
    assert f"{file}: no step was seen: " in done.stderr
    assert sentence.format(file=file) in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "sim").exists()


def test_a_script_without_a_step_is_refused(tmp_path: Path) -> None:
    """Validation, calibration and draws call `simulate` themselves."""
    scenario = twinstep.scenario(script(tmp_path, "x = 1\n"), hosts=1, gpus_per_host=2, profile="cpu_local")
    with pytest.raises(ProgramError, match="no step was seen: the script ended at its last line"):
        simulate(scenario, build(scenario))


def test_a_process_that_is_no_rank_makes_no_group(tmp_path: Path) -> None:
    """The rank of such a process is unknown."""
    body = (
        "from torch.multiprocessing import get_context\ndef main():\n    dist.init_process_group('gloo')\n"
        "child = get_context('fork').Process(target=main)\nchild.start()\nchild.join()\nassert child.exitcode\n"
    )
    done = run(tmp_path, script(tmp_path, body, head="import torch\nimport torch.distributed as dist\n"))
    assert done.returncode == 1
    own_ranks = "starts ranks of its own: expected torch.multiprocessing.spawn, Processes of one function"
    assert re.search(rf"^rank 0: train.py:\d: {own_ranks}", done.stderr, re.MULTILINE)


@pytest.mark.supports("`torch.distributed.rpc`", "refused", "CPUs", "GPUs")
def test_rpc_is_refused_by_name(tmp_path: Path) -> None:
    body = "from torch.distributed import rpc\nrpc.init_rpc('worker', rank=rank, world_size=2)\n"
    done = run(tmp_path, script(tmp_path, body))
    assert "rank 0: train.py:15: torch.distributed.rpc is not simulated: expected collectives" in done.stderr


@pytest.mark.slow
def test_rpc_is_refused_in_a_process_that_a_script_starts(tmp_path: Path) -> None:
    """A server of parameters, say, which would wait for its workers for ever: it raises there."""
    head = (
        "import os\nimport torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n"
        "from torch.distributed import rpc\ndef serve():\n    rpc.init_rpc('server', rank=0, world_size=2)\n"
    )
    body = (
        "if __name__ == '__main__':\n    server = mp.get_context('spawn').Process(target=serve)\n"
        "    server.start()\n    server.join()\n    assert server.exitcode\n"
    )
    done = run(tmp_path, script(tmp_path, body, head=head))
    assert "no step was seen: the script ended at its last line" in done.stderr


def calls_of_steps(folder: Path) -> list[int]:
    """Return how many collectives rank 0 calls in each step, and behind them those outside of steps."""
    spans = store.load(folder).spans
    own = spans[(spans["rank"] == 0) & (spans["group"] != "")]
    steps = sorted(set(spans["step"]) - {-1})
    return [int((own["step"] == step).sum()) for step in [*steps, -1]]


BY_ITSELF = "import twinstep\nfor _ in range(5):\n    backward()\n    by_hand()\n    twinstep.step()\ndist.barrier()\n"
TWO_OPTIMIZERS = """
first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
for number in range(9):
    backward()
    dist.all_reduce(model.bias.grad)
    first.step()
    if number % 2:
        dist.barrier()
        second.step()
"""


@pytest.mark.parametrize(
    ("body", "words", "calls"),
    [
        (BY_ITSELF, [], [2, 2, 2, 2, 3]),  # its last call belongs to no step, nor does the first step
        (BY_ITSELF, ["--draws", "2"], [2, 2, 2, 2, 3]),  # which are short, too, and say nothing more
        (BY_ITSELF, ["--steps", "2"], [2, 2, 2]),
        (BY_ITSELF, ["--step-every", "backward:2"], [4, 7]),  # which goes before what the script says
        (BY_HAND, ["--step-every", "backward"], [2, 2, 2, 2, 2, 2, 2]),
        (BY_HAND, ["--step-every", "all_reduce:7"], [7, 7]),
        (SERVES, ["--step-every", "forward"], [1, 1, 1, 1]),  # of the whole model, not of its parts
        (TWO_OPTIMIZERS, ["--step-every", "optimizer:2"], [3, 3, 3, 4]),
        (ONE_STEP, ["--step-every", "once"], [2, 1]),  # two in the step, one ahead of the first call of a module
    ],
)
@pytest.mark.supports("steps of hand-written loops: `twinstep.step()`, `--step-every`", "CPUs")
def test_marks_part_a_run_into_steps(body: str, words: list[str], calls: list[int], tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, body), *words, steps=10)
    assert done.returncode == 0, done.stderr
    assert calls_of_steps(tmp_path / "sim") == calls
    if "--steps" not in words:
        assert done.stderr.count(f"train.py: ended after {len(calls) - 1} of 10 steps (run.steps)") == 1


@pytest.mark.slow
def test_an_optimizer_that_skips_steps_is_named(tmp_path: Path) -> None:
    """By rank 0's process, whose notes are on the command's own stderr."""
    given = ["--hosts", "1", "--gpus-per-host", "2", "--profile", "emulated_200mbit", "--steps", "6", "--quiet"]
    file = script(tmp_path, TWO_OPTIMIZERS)
    line = [sys.executable, "-m", "sim", *given, "--out", str(tmp_path / "sim"), str(file)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    sentence = "note: the first optimizer, SGD, marks the steps, and SGD does not step in each: "
    assert done.stderr.count(sentence) == 1


def test_work_after_the_last_optimizer_step_is_no_step(tmp_path: Path) -> None:
    """Else the time behind the loop, next to nothing, would be the median of a script of two steps."""
    loop = "for _ in range(3):\n    backward()\n    sgd.step()\nbackward()\n"
    body = f"dist.barrier()\nsgd = torch.optim.SGD(model.parameters(), lr=0.1)\n{loop}"
    run(tmp_path, script(tmp_path, body), steps=9)
    found = store.load(tmp_path / "sim")
    assert found.steps["step"].tolist() == [0, 1]
    assert sorted(set(found.metrics["step"])) == [0, 1]  # losses


@pytest.mark.parametrize(
    ("body", "sentences"),
    [
        (
            "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "for _ in range(2 if rank else 9):\n    backward()\n    sgd.step()\n",
            ["ranks did not make the same number of steps: rank 1 made 1, rank 0 made 3; rank 1's script ended at its"],
        ),
        (
            "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "if rank:\n    dist.barrier()\nfor _ in range(9):\n    backward()\n    sgd.step()\ndist.barrier()\n",
            ["rank 1 waits for barrier", "rank 0's script was ended after its 3 steps (run.steps); rank 1 has begun 0"],
        ),
        (
            "if rank:\n    sys.exit()\ndist.barrier()\n",
            ["rank 0 waits for barrier", "rank 1's script ended by sys.exit in {file}:15, after 0 whole steps; rank 0"],
        ),
    ],
    ids=["early", "rank 0 alone", "exits"],
)  # fmt: skip
def test_ranks_that_part_are_named(body: str, sentences: list[str], tmp_path: Path) -> None:
    file = script(tmp_path, body)
    done = run(tmp_path, file)
    assert done.returncode == 1
    for sentence in sentences:
        assert sentence.format(file=file) in done.stderr


def test_a_mark_behind_an_optimizers_is_an_error(tmp_path: Path) -> None:
    body = (
        "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\nbackward()\nsgd.step()\nimport twinstep\ntwinstep.step()\n"
    )
    done = run(tmp_path, script(tmp_path, body))
    assert done.returncode == 1
    assert "train.py:18: RuntimeError: twinstep.step(): an optimizer has marked steps before: expected" in done.stderr


@pytest.mark.parametrize("word", ["bakward", "all_reduce:0", "backward:x", ":2"])
def test_a_word_that_marks_nothing_is_refused(word: str, tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, BY_HAND), "--step-every", word)
    assert done.returncode == 2
    assert (
        f"script.step_every = '{word}': expected optimizer, backward, forward, once or a collective's name"
        in done.stderr
    )


def test_python_predicts_with_marks(tmp_path: Path) -> None:
    given = {"hosts": 1, "gpus_per_host": 2, "profile": "emulated_200mbit", "steps": 2}
    file = script(tmp_path, BY_HAND)
    assert twinstep.predict(file, step_every="backward", **given).steps["step"].tolist() == [0, 1]
    with pytest.raises(ProgramError, match="no step was seen"):
        twinstep.predict(file, **given)


def test_ranks_that_never_call_each_other_are_an_error_unless_there_is_one(tmp_path: Path) -> None:
    body = "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(4):\n    backward()\n    sgd.step()\n"
    file = script(tmp_path, body)
    done = run(tmp_path, file)
    assert done.returncode == 1
    assert f"{file}: none of the 2 ranks that ran made a call of torch.distributed, so that each trains" in done.stderr
    assert twinstep.predict(file, hosts=1, gpus_per_host=1, profile="emulated_200mbit", steps=2).info.world_size == 1


def test_a_script_that_trains_long_without_a_mark_is_not_let_run_to_its_end(tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, "while True:\n    backward()\n"))
    assert done.stderr.startswith("rank 0: no step was seen in 1,000 backward passes: expected --step-every backward")


ON_CPU = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
model = torch.nn.Linear(512, 512)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(64, 512)).sum().backward()
"""


def test_a_step_that_is_marked_twice_is_an_error_on_gpus(tmp_path: Path) -> None:
    body = "import twinstep\nx = torch.ones(4, device='cuda')\nfor _ in range(4):\n    dist.all_reduce(x)\n"
    body += "    twinstep.step()\n    twinstep.step()\n"
    done = run(tmp_path, file := script(tmp_path, body, head=ON_CPU), profile="dgx_h100")
    assert done.returncode == 1
    assert f"{file}: steps 0 and 2 launched no kernel and called no collective: expected one mark" in done.stderr


def test_a_step_that_is_marked_twice_is_an_error_on_cpus(tmp_path: Path) -> None:
    """A step may call nothing, as where gradients are added up, if it computes as others do."""
    body = "import twinstep\nfor number in range(6):\n    step()\n    if number % 2:\n        dist.barrier()\n"
    file = script(tmp_path, f"{body}    twinstep.step()\n", head=ON_CPU)
    assert run(tmp_path, file, steps=4).returncode == 0
    twice = tmp_path / "twice"
    twice.mkdir()
    done = run(twice, file := script(twice, f"{body}    twinstep.step()\n    twinstep.step()\n", head=ON_CPU), steps=4)
    assert done.returncode == 1
    assert f"{file}: steps 0 and 2 ran no module and called no collective: expected one mark at the" in done.stderr


def test_steps_in_the_scripts_own_lines_are_no_error_on_cpus(tmp_path: Path) -> None:
    """Also where only every second one calls a collective."""
    body = "import twinstep\nx = torch.ones(600, 600)\nfor number in range(6):\n    x @ x\n"
    file = script(tmp_path, f"{body}    if number % 2:\n        dist.barrier()\n    twinstep.step()\n", head=ON_CPU)
    assert run(tmp_path, file, steps=4).returncode == 0


def test_steps_of_nothing_but_the_hosts_work_are_an_error_on_gpus(tmp_path: Path) -> None:
    file = script(tmp_path, "for _ in range(6):\n    step()\n    sgd.step()\n", head=ON_CPU)
    done = run(tmp_path, file, profile="dgx_h100")
    assert done.returncode == 1
    assert re.search(
        rf"{file}: nothing that its steps do is predicted: the host's own work takes [\d.]+ .?s a step, and profile"
        " dgx_h100 prices what GPUs do, which got no kernel and no collective; expected tensors on 'cuda', or",
        done.stderr,
    )


def test_a_scenario_file_sets_the_marks_of_steps(tmp_path: Path) -> None:
    script(tmp_path, BY_HAND)
    file = tmp_path / "marked.toml"
    cluster = "[cluster]\nprofile = 'emulated_200mbit'\nhosts = 2\n"
    file.write_text(
        f"program = 'script'\n{cluster}[script]\npath = 'train.py'\nstep_every = 'backward'\n[run]\nsteps = 2\n"
    )
    assert twinstep.predict(file).steps["step"].tolist() == [0, 1]

"""What a command says of a script besides its steps: what is left out of them, a profile that is missing, errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import command, unfold
from tests.sim.test_script_steps import ON_CPU, run, script

USES = """
from torch.utils.data import DataLoader
gpu = torch.nn.Linear(512, 512, device="cuda")
sgd = torch.optim.SGD(gpu.parameters(), lr=0.1)
for batch in DataLoader(torch.randn(512, 512), batch_size=64, num_workers=NUMBER):
    step()
    gpu(batch.to("cuda")).sum().backward()
    sgd.step()
"""


def test_cpu_work_is_printed_next_to_the_step_time(tmp_path: Path) -> None:
    """Also where the recording is played again."""
    done = run(tmp_path, script(tmp_path, USES.replace("NUMBER", "1"), head=ON_CPU), "--full", profile="dgx_h100")
    text = " ".join(done.stdout.split())
    number, line = r"[\d.]+ .?s", r"\((most in )?train.py:\d+\)"
    on_cpu = rf"{number} per step of operators on CPU tensors {line}"
    loading = (
        rf"data loading of {number} per batch in 1 worker {line}, measured here,"
        rf" (hidden|for which a step waits {number})"
    )
    said = f"({on_cpu}; {loading}|{loading}; {on_cpu})"  # the longer one first
    assert re.search(f"CPU work of the hosts: {said}", text)
    shown = command("reports", "show", tmp_path / "sim", "--full").stdout
    assert re.search(f"CPU work of the hosts: {said}", " ".join(shown.split()))
    again = command("sim", "--json", "--out", tmp_path / "again", tmp_path / "sim")
    assert re.fullmatch(said, "; ".join(json.loads(again.stdout)["on_cpu"]))


def test_unpredicted_time_is_named_next_to_the_step_time(tmp_path: Path) -> None:
    """What other threads compute on GPUs' hosts; on CPUs what data loaders' workers do."""
    thread = "from threading import Thread\n" + USES.replace("NUMBER", "0")
    thread = thread.replace("    step()\n", "    beside = Thread(target=step)\n    beside.start()\n    beside.join()\n")
    done = run(tmp_path, script(tmp_path, thread, head=ON_CPU), profile="dgx_h100")
    text = " ".join(done.stdout.split())
    assert re.search(r"not predicted: [\d.]+ .?s per step of operators on CPU tensors in other threads", text)
    body = USES.replace("NUMBER", "1").replace(', device="cuda"', "").replace('.to("cuda")', "")
    on_cpus = tmp_path / "on_cpus"
    on_cpus.mkdir()
    done = run(on_cpus, script(on_cpus, body, head=ON_CPU))
    assert "not predicted: time of DataLoader workers" in " ".join(done.stdout.split())


@pytest.mark.parametrize("profile", ["dgx_h100", "emulated_200mbit"])
def test_processes_that_fill_a_queue_are_named_as_not_predicted(profile: str, tmp_path: Path) -> None:
    body = """
import multiprocessing
def fill(queue):
    while True:
        queue.put([1.0])
queue = multiprocessing.Queue(4)
multiprocessing.Process(target=fill, args=(queue,), daemon=True).start()
model = torch.nn.Linear(1, 1, device=DEVICE)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    dist.all_reduce(model(torch.tensor(queue.get(), device=DEVICE)))
    model(torch.ones(1, device=DEVICE)).sum().backward()
    sgd.step()
"""
    body = body.replace("DEVICE", "'cuda'" if profile == "dgx_h100" else "'cpu'")
    done = run(tmp_path, script(tmp_path, body, head=ON_CPU), profile=profile)
    assert "not predicted: time of processes that fill a queue (train.py:" in " ".join(done.stdout.split()), done.stderr


def test_complete_predictions_have_no_note(tmp_path: Path) -> None:
    body = "gpu = torch.nn.Linear(512, 512, device='cuda')\nadam = torch.optim.Adam(gpu.parameters())\n"
    body += "for _ in range(6):\n    gpu(torch.randn(64, 512, device='cuda')).sum().backward()\n    adam.step()\n"
    done = run(tmp_path, script(tmp_path, body, head=ON_CPU), profile="dgx_h100")
    assert done.returncode == 0
    assert "not predicted" not in done.stdout


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'", "torch.cuda.is_available"),
        ("gpus = torch.cuda.device_count()", "torch.cuda.device_count"),
        ("x = torch.ones(2, device='cuda')", "a GPU"),
        ("x = torch.ones(2).cuda()", "a GPU"),
        ("torch.cuda.set_device(0)", "torch.cuda.set_device"),
        ("device = torch.accelerator.current_accelerator()", "torch.accelerator.current_accelerator"),
        ("dist.init_process_group('nccl')", "backend nccl"),
    ],
)
def test_a_script_that_asks_for_cuda_is_asked_for_a_profile(line: str, what: str, tmp_path: Path) -> None:
    head = "import torch\nimport torch.distributed as dist\n"
    file = script(tmp_path, f"{line}\n", head=head)
    done = command("sim", "--hosts", 1, "--gpus-per-host", 2, "--out", tmp_path / "out", file)
    assert done.returncode == 1
    assert f"train.py:3: the script asks for CUDA ({what}), and no --profile says which GPUs to predict" in done.stderr
    assert "--profile cpu_local" in done.stderr


def test_a_profile_of_cpus_or_a_package_that_looks_for_gpus_asks_for_nothing(tmp_path: Path) -> None:
    body = "on_gpu = torch.cuda.is_available()\nsgd = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    loop = "dist.barrier()\nfor _ in range(4):\n    backward()\n    sgd.step()\n"
    assert run(tmp_path, script(tmp_path, body + loop), steps=2).returncode == 0
    file = script(tmp_path, body.partition("\n")[2] + "torch.manual_seed(1)\n" + loop)
    done = command("sim", "--hosts", 1, "--gpus-per-host", 2, "--steps", 2, "--out", tmp_path / "out", file)
    assert done.returncode == 0, done.stderr


FAILS = """
import torch
import helper
def main():
    helper.loads(torch.ones(2, 4))
main()
"""
HELPER = """
import torch
def loads(x):
    try:
        {}["weights"]
    except KeyError as error:
        torch.nn.functional.linear(x, torch.ones(3, 3))
"""


def test_an_error_after_steps_says_how_to_predict_these(tmp_path: Path) -> None:
    body = "for _ in range(4):\n    step()\n    sgd.step()\nraise ValueError('no validation set')\n"
    file = script(tmp_path, body, head=ON_CPU)
    done = run(tmp_path, file, steps=9)
    assert done.returncode == 1
    assert "ValueError: no validation set" in done.stderr
    assert "(--steps 3 predicts the steps before)" in done.stderr
    assert run(tmp_path, file, "--out", str(tmp_path / "again"), steps=3).returncode == 0


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_an_error_shows_the_scripts_own_frames(
    is_elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line named is where the script was, also in a package of its own that lies elsewhere."""
    folder = tmp_path / "packages" if is_elsewhere else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "helper.py").write_text(HELPER.lstrip())
    file = script(tmp_path, "", head=f"import sys\nsys.path.append({str(folder)!r})\n{FAILS.lstrip()}")
    done = run(tmp_path, file)
    assert done.returncode == 1
    first, *shown = done.stderr.splitlines()
    assert first == (
        f"rank 0: {folder}/helper.py:6: RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 3x3)"
    )
    lines = [line.strip() for line in shown if line.strip(" ^~")]
    assert lines == [
        f'File "{file}", line 7, in <module>', "main()",
        f'File "{file}", line 6, in main', "helper.loads(torch.ones(2, 4))",
        f'File "{folder}/helper.py", line 6, in loads', "torch.nn.functional.linear(x, torch.ones(3, 3))",
        f"after KeyError: 'weights' ({folder}/helper.py:4)", "(--traceback shows torch's frames, too)",
    ]  # fmt: skip
    everything = run(tmp_path, file, "--traceback").stderr
    assert everything.startswith(first)
    assert "runpy" in everything
    assert "KeyError: 'weights'\n\nDuring handling" in everything


def test_a_long_prediction_names_what_took_longest(tmp_path: Path) -> None:
    body = "import time\ntime.sleep(4)\nfor _ in range(4):\n    step()\n    sgd.step()\n"
    file = script(tmp_path, body, head=ON_CPU)
    done = run(tmp_path, file)
    assert re.search(r"\npredicted in [\d.]+ s, the longest part: setting up, [\d.]+ s\n$", done.stdout)
    assert "predicted in" not in run(tmp_path, file, "--json", "--out", str(tmp_path / "again"), steps=1).stdout


def test_ranks_on_gpus_run_at_the_same_time(tmp_path: Path) -> None:
    """So that one may wait for what another one writes; a rank on a CPU, whose time is measured, runs alone."""
    here, there = (f"open({str(tmp_path)!r} + f'/{{{rank}}}', 'w')" for rank in ("rank", "1 - rank"))
    body = f"import os\nrank = dist.get_rank()\n{here}\nwhile not os.path.exists({there[5:-6]}): pass\n"
    body += "gpu = torch.nn.Linear(8, 8, device='cuda')\nsgd = torch.optim.SGD(gpu.parameters())\n"
    body += "for _ in range(4):\n    gpu(torch.ones(8, 8, device='cuda')).sum().backward()\n    sgd.step()\n"
    done = run(tmp_path, script(tmp_path, body, head=ON_CPU), "--timeout", "30 s", profile="dgx_h100")
    assert done.returncode == 0, done.stderr


def test_a_wait_outside_of_collectives_is_named(tmp_path: Path) -> None:
    body = f"while not __import__('os').path.exists({str(tmp_path / 'there')!r}): __import__('time').sleep(0.01)\n"
    done = run(tmp_path, script(tmp_path, body), "--timeout", "2 s")
    assert (
        "train.py made no call for 2 s (run.timeout), in train.py:14: it computes, sleeps, or waits for" in done.stderr
    )


def test_an_argument_parser_that_gives_up_is_named(tmp_path: Path) -> None:
    head = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
    file = script(tmp_path, "parser.parse_args()\n", head=head)
    done = run(tmp_path, file)
    assert f"rank 0: {file} ended with exit code 2 (sys.exit in {file}:4)" in done.stderr


def test_a_warning_of_all_ranks_is_shown_once_with_the_number_of_the_others(tmp_path: Path) -> None:
    """Ranks write to the stderr of the process that their server was forked from, so the command has its own."""
    body = "import logging, warnings\nwarnings.warn('this model is old')\nlogging.warning('of the script')\n"
    # As torch warns of arguments of a function that the simulation replaces: it names the replacement's line.
    replacing = "__import__('sys').modules['scenarios.workloads.script.process.gradients'].__file__"
    body += f"warnings.warn_explicit('of a caller', FutureWarning, {replacing}, 27)\n"
    body += "logging.getLogger('torch.x').warning('of torch')\nfor _ in range(3):\n    step()\n    sgd.step()\n"
    words = ["--hosts", "1", "--gpus-per-host", "2", "--profile", "emulated_200mbit", "--steps", "3", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "sim", *words, "--out", tmp_path / "sim", script(tmp_path, body, head=ON_CPU)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = unfold(done.stderr)
    shown = ("UserWarning: this", "of torch", "root:of the script", "train.py:12: FutureWarning: of a caller")
    assert [said.count(words) for words in shown] == [1, 1, 2, 1]
    for kind in ("UserWarning", "warning"):
        assert re.search(rf"\nnote: .*train.py:\d+: {kind}: also given by 1 other rank\n", said)


def test_stated_samples_give_a_rate(tmp_path: Path) -> None:
    body = "for _ in range(3):\n    step()\n    sgd.step()\n"
    done = run(tmp_path, script(tmp_path, body, head=ON_CPU), "--set", "script.batch_size=64")
    assert re.search(r"\nsamples/s   [\d,.]+, 64 samples per rank\n", done.stdout)

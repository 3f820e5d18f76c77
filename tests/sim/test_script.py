"""Scripts of torch.distributed, unmodified: their values and calls are those of real ranks; bad ones are sentences."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import CollectiveError, DeadlockError, ProgramError, ScenarioError
from scenarios.seam.trace import Recording
from scenarios.workloads.script.command import load_given, split_at_script
from tests.sim.unjudged import simulate_unjudged

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "data" / "scripts"


def scenario(path: Path, *args: str, hosts: int = 2, gpus: int = 1, **overrides: object) -> Scenario:
    overrides = {"profile": "emulated_200mbit", "timeout": "20 s", **overrides}
    return load_given(path, overrides, args=args, hosts=hosts, gpus_per_host=gpus)


def play_script(path: Path, *args: str, hosts: int = 2, gpus: int = 1, **overrides: object) -> Recording:
    made = scenario(path, *args, hosts=hosts, gpus=gpus, **overrides)
    return simulate_unjudged(made)


def bad(folder: Path, body: str) -> Path:
    (file := folder / "bad.py").write_text(
        f"import time\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n{body}"
    )
    return file


def test_every_collective_has_the_results_of_real_ranks() -> None:
    """The script asserts it, and is run by torchrun, too."""
    recording = play_script(SCRIPTS / "verbs.py", hosts=2, gpus=2)
    assert {span.kind for span in recording.spans} >= {"all_reduce", "broadcast", "all_to_all", "send", "recv"}


@pytest.mark.slow
@pytest.mark.real
def test_a_script_also_runs_under_torchrun() -> None:
    run = torchrun("verbs.py", ranks=4)
    assert sorted(re.findall(r"rank \d is done", run)) == [f"rank {rank} is done" for rank in range(4)]


@pytest.mark.slow  # `tests/real/script/test_measured.py` has the losses of twinstep's own launcher
@pytest.mark.real
@pytest.mark.parametrize("hook", ["", "fp16"])
@pytest.mark.supports("losses", "CPUs", "real")
def test_losses_equal_those_of_real_ranks(hook: str) -> None:
    """To what float32 sums in another order make of it."""
    found = re.findall(r"step (\d) rank (\d) ([\d.]+)", torchrun("ddp.py", *filter(None, [hook]), ranks=2))
    real = {(int(step), int(rank)): float(loss) for step, rank, loss in found}
    recording = play_script(SCRIPTS / "ddp.py", *filter(None, [hook]), steps=5)
    # Steps count from the one after the script's first.
    losses = {(metric.step + 1, metric.rank): metric.value for metric in recording.metrics}
    assert sorted(losses) == [(step, rank) for step in range(1, 6) for rank in range(2)]
    for step in range(1, 6):
        mean = sum(losses[step, rank] for rank in range(2)) / 2
        assert mean == pytest.approx(real[step, 0], rel=1e-5)


@pytest.mark.parametrize(("hook", "share"), [("", 1.0), pytest.param("fp16", 0.5, marks=pytest.mark.slow)])
def test_a_step_reduces_all_gradients_in_buckets(hook: str, share: float) -> None:
    recording = play_script(SCRIPTS / "ddp.py", *filter(None, [hook]), steps=4)
    parameters = 64 * 256 + 256 + 256 * 256 + 256 + 256 + 1
    for step in range(4):
        calls = [one for one in recording.spans if one.rank == 0 and one.step == step and one.kind == "all_reduce"]
        sizes = [one.bytes_in for one in calls]
        assert sum(sizes) == pytest.approx(4 * share * parameters + 4)  # and the mean loss
        assert len(sizes) > 2
        assert {one.label.split()[0] for one in calls} == {"ddp.py:37", "ddp.py:40"}


def test_computations_are_labelled_with_their_module() -> None:
    """In the order in which it is computed, backward too, where activations are computed anew."""
    recording = play_script(SCRIPTS / "parts.py", steps=1)
    spans = [one for one in recording.spans if one.rank == 0 and one.kind == "compute"]
    assert [one.label for one in sorted(spans, key=lambda one: one.sequence) if one.label != "script"] == [
        *("OptimizedModule", "RecursiveScriptModule", "Head", "deep", "Head", "last", "Head"),
        *("last.backward", "deep.backward", "deep", "deep.backward"),
        *("RecursiveScriptModule.backward", "OptimizedModule.backward", "SGD.step"),
    ]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "if dist.get_rank() == 1:\n    raise ValueError('no data')\ndist.barrier()\n",
            r"rank 1: .*bad\.py:6: ValueError: no data",
        ),
        ("if dist.get_rank() == 1:\n    time.sleep(60)\ndist.barrier()\n", r"rank 1: .*bad\.py made no call for 3 s"),
        ("if dist.get_rank() == 0:\n    dist.barrier()\n", r"rank 0 .*bad\.py:6 barrier"),
        ("dist.all_reduce(torch.ones(2 + dist.get_rank()))\n", r"bad\.py:5 all_reduce"),
        ("import sys\nsys.exit(3)\n", r"bad\.py ended with exit code 3"),
        ("import os\nos._exit(4)\n", r"bad\.py: its process ended with code 4"),
        ("import os\nos.kill(os.getpid(), 9)\n", r"bad\.py: its process was killed \(SIGKILL\), as the system does"),
    ],
    ids=["raises", "hangs", "alone", "sizes", "exits", "dies", "killed"],
)
def test_a_bad_script_raises_one_sentence(body: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises((ProgramError, CollectiveError, DeadlockError), match=sentence):
        play_script(bad(tmp_path, body), timeout="3 s")
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert not left


def test_a_rank_that_is_killed_while_answers_are_on_their_way_is_the_same_sentence(tmp_path: Path) -> None:
    (file := tmp_path / "killed.py").write_text(
        "import os\nimport torch\nx = torch.ones(8, device='cuda')\n"
        "for _ in range(12):\n    x.add_(1).sum().item()\nos.kill(os.getpid(), 9)\n"
    )
    with pytest.raises(ProgramError, match=r"rank 0: .*killed\.py: its process was killed \(SIGKILL\)"):
        play_script(file, hosts=1, profile="dgx_h100")


def test_a_rank_that_waits_asleep_for_one_that_makes_calls_is_not_late(tmp_path: Path) -> None:
    """Longer than run.timeout, in which the other one makes some."""
    body = f"""import os
file, store = {str(tmp_path / "made")!r}, dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    for number in range(3):
        until_s = time.process_time() + 0.8
        while time.process_time() < until_s:
            pass
        store.set(str(number), "made")
        time.sleep(0.05)
    open(file, "w").close()
while not os.path.exists(file):
    time.sleep(0.02)
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters())
for _ in range(2):
    layer(torch.ones(8)).sum().backward()
    optimizer.step()
"""
    recording = play_script(bad(tmp_path, body), timeout="2 s", steps=1)
    assert {span.rank for span in recording.spans if span.kind == "step"} == {0, 1}


def test_invalid_scenario_keys_of_a_script_are_all_named(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    run = "[run]\npayload = 'sizes'\nranks = 'alike'\n"
    file.write_text(f"program = 'script'\n{run}[cluster]\nprofile = 'cpu_local'\nhosts = 1\n[script]\npath = 'no.py'\n")
    with pytest.raises(ScenarioError) as wrong:
        load(file)
    text = str(wrong.value)
    assert f"script.path = 'no.py': expected a script, but there is no file {tmp_path / 'no.py'}" in text
    assert "run.payload = 'sizes': expected 'values', as scripts on CPUs compute all values" in text
    assert "run.ranks = 'alike': expected 'each', because the library is gloo" in text


def test_arguments_after_a_script_are_its_own() -> None:
    parser = ArgumentParser()
    parser.add_argument("scenario", nargs="?")
    for name in ("--hosts", "--out"):
        parser.add_argument(name)
    options, own = split_at_script(parser, ["--hosts", "2", "--out", "a.py", "./train.py", "--json", "x.py"])
    assert (options.scenario, options.hosts, options.out, own) == ("./train.py", "2", "a.py", ["--json", "x.py"])
    options, own = split_at_script(parser, ["scenario.toml", "--out", "a.py", "--hosts", "2"])
    assert (options.scenario, options.hosts, options.out, own) == ("scenario.toml", "2", "a.py", None)


def test_the_command_predicts_a_script(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sim", "--hosts", "2", "--gpus-per-host", "1", "--profile", "emulated_200mbit"]
    command += ["--steps", "3", "--out", str(tmp_path / "run"), str(SCRIPTS / "ddp.py"), "fp16"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "ddp: predicted, 2 ranks on 2 hosts" in done.stdout
    assert "step 2 rank 0" in done.stderr  # what the script prints goes there
    assert "step 2 rank 0" not in done.stdout


def test_a_program_without_a_guard_predicts_a_script(tmp_path: Path) -> None:
    """Ranks' processes do not run it anew."""
    file = tmp_path / "asks.py"
    given = f"{str(SCRIPTS / 'ddp.py')!r}, args=['fp16'], hosts=2, gpus_per_host=1, profile='emulated_200mbit', steps=2"
    file.write_text(f"import twinstep\nrun = twinstep.predict({given})\nprint('ranks', run.info.world_size)\n")
    done = subprocess.run(
        [sys.executable, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ranks 2\n"


def torchrun(name: str, *args: str, ranks: int) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(SCRIPTS / name), *args],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )
    # What it says is whole; torch's own gloo may abort after that, as it takes its threads down (torch 2.13).
    assert done.returncode == 0 or "terminate called without an active exception" in done.stderr, done.stderr
    return done.stdout

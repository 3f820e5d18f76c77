"""`python -m real train.py`: the script's own groups of torch's, watched; the same calls and losses as simulated."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.analysis.step_breakdown import timed_steps
from reports.store import run_folder as store
from tests.commands import command

ROOT = Path(__file__).parents[3]
SCRIPTS, EXAMPLES = ROOT / "tests" / "data" / "scripts", ROOT / "examples" / "scripts"

# Of a call, what both worlds must have alike.
COLUMNS = ["step", "stream", "kind", "label", "group", "call", "bytes_in", "bytes_out", "bytes_sent", "dtype"]


def run(room: str, folder: Path, script: Path, *words: str, ranks: tuple[int, int], **options: object) -> Any:
    """Return the run of one world."""
    hosts, gpus = ranks
    given = {"hosts": hosts, "gpus-per-host": gpus, "profile": "emulated_200mbit", "timeout": "60 s", **options}
    if "optim" not in script.read_text():
        given["step-every"] = "all_reduce"
    out = folder / room
    words = (*(word for key, value in given.items() for word in (f"--{key}", str(value))), str(script), *words)
    done = command(room, "--quiet", "--out", out, *words)
    assert done.returncode == 0, done.stderr
    return store.load(out)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Any, Path]]:
    """A script's runs on real ranks and in the simulator, and their folder; made once for each script and options."""

    @cache
    def runs(script: Path, *words: str, ranks: tuple[int, int], steps: int) -> tuple[Any, Any, Path]:
        folder = tmp_path_factory.mktemp(script.stem)
        real, simulated = (run(room, folder, script, *words, ranks=ranks, steps=steps) for room in ("real", "sim"))
        return real, simulated, folder

    return runs


def calls(found: Any, rank: int) -> pd.DataFrame:
    spans = found.spans
    own = spans[(spans["rank"] == rank) & ~spans["kind"].isin(["compute", "step"])]
    return own.sort_values("sequence")[COLUMNS].reset_index(drop=True)


@pytest.mark.parametrize(
    ("script", "words", "ranks", "steps"),
    [
        (SCRIPTS / "ddp.py", ["fp16"], (2, 1), 4),
        pytest.param(SCRIPTS / "ddp.py", [], (2, 1), 9, marks=pytest.mark.slow, id="until it ends"),
        pytest.param(SCRIPTS / "ddp.py", ["powersgd"], (2, 1), 4, marks=pytest.mark.slow),
        pytest.param(SCRIPTS / "sparse_replicas.py", [], (2, 1), 4, marks=pytest.mark.slow),
        pytest.param(SCRIPTS / "verbs.py", [], (2, 2), 4, marks=pytest.mark.slow),
        pytest.param(SCRIPTS / "every_call.py", [], (1, 2), 4, marks=pytest.mark.slow, id="every call"),
        *(
            pytest.param(EXAMPLES / f"{name}.py", words, ranks, 3, marks=pytest.mark.slow)
            for name, words, ranks in [
                ("transformer_ddp", [], (2, 1)),
                ("transformer_fsdp2", ["--hybrid"], (2, 2)),
                ("tensor_parallel", [], (2, 2)),
                ("pipeline_parallel", [], (2, 1)),
                ("zero", [], (2, 1)),
                ("local_sgd", [], (2, 2)),
                ("ring", [], (4, 1)),
            ]
        ),
        *(
            pytest.param(SCRIPTS / "meshes.py", [kind], ranks, 2, marks=pytest.mark.slow, id=kind)
            for kind, ranks in [
                ("hybrid", (2, 2)),
                ("uneven", (2, 1)),
                ("sequence", (2, 1)),
                ("interleaved", (2, 1)),
            ]
        ),
    ],
)
@pytest.mark.supports("DistributedDataParallel", "CPUs", "real")
@pytest.mark.supports("sparse gradients under DistributedDataParallel, over gloo", "real")
@pytest.mark.supports("comm hooks of DDP: fp16, PowerSGD", "CPUs", "real")
@pytest.mark.supports("FSDP2 (`fully_shard`), HSDP", "CPUs", "real")
@pytest.mark.supports("tensor parallelism, sequence parallelism, meshes of two dimensions", "CPUs", "real")
@pytest.mark.supports("pipeline parallelism: torch.distributed.pipelining", "CPUs", "real")
@pytest.mark.supports("ZeroRedundancyOptimizer", "CPUs", "real")
@pytest.mark.supports("local SGD: PostLocalSGDOptimizer, PeriodicModelAverager", "CPUs", "real")
@pytest.mark.supports("every collective and message of torch.distributed", "CPUs", "real")
def test_simulated_and_real_scripts_make_the_same_calls(
    script: Path, words: list[str], ranks: tuple[int, int], steps: int, both: Callable[..., tuple[Any, Any, Path]]
) -> None:
    """In order, byte for byte, each named after the same line; and what the script trains on is the same."""
    real, simulated, _ = both(script, *words, ranks=ranks, steps=steps)
    for rank in range(ranks[0] * ranks[1]):
        pd.testing.assert_frame_equal(calls(real, rank), calls(simulated, rank))
        assert len(calls(real, rank)) > 0
    by = ["rank", "step", "name"]
    losses = [found.metrics.sort_values([*by, "value"]).reset_index(drop=True) for found in (real, simulated)]
    pd.testing.assert_frame_equal(losses[0], losses[1], rtol=1e-5)


@pytest.mark.parametrize("words", [["ddp.py", "fp16"], pytest.param(["parts.py"], marks=pytest.mark.slow)])
def test_time_between_two_calls_is_computation(words: list[str], both: Callable[..., tuple[Any, Any, Path]]) -> None:
    """On each rank, in both worlds at the same places, for the same modules; and the rank's log has what it printed."""
    real, simulated, folder = both(SCRIPTS / words[0], *words[1:], ranks=(2, 1), steps=4)
    for rank in range(2):
        orders = []
        for found in (real, simulated):
            spans = found.spans[(found.spans["rank"] == rank) & (found.spans["step"] >= 0)]
            orders.append(spans.sort_values("sequence")["label"].tolist())
            assert (spans["end_ns"] >= spans["start_ns"]).all()
        assert orders[0] == orders[1]
        assert orders[0].count("script") > 3
        assert orders[0].count("SGD.step") == 4
    assert "step 2 rank 1" in (folder / "real" / "rank-1.log").read_text()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("if dist.get_rank() == 1:\n    raise ValueError('no data')\n", r"rank 1: {file}:6: ValueError: no data"),
        pytest.param(
            "if dist.get_rank() == 1:\n    time.sleep(60)\n",
            "rank 1 did not reach barrier 'bad.py:7 barrier' on stream main (call 0 of group world) within 3 s;"
            " it stands in bad.py:6",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "if dist.get_rank() == 1:\n    sys.exit()\n",
            "rank 1 did not reach barrier 'bad.py:7 barrier' on stream main (call 0 of group world) within 3 s;"
            " it stands after its script's last line",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "if dist.get_rank() == 1:\n    os._exit(4)\n",
            "rank 1: {file}: its process ended with code 4",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["raises", "hangs", "ends", "dies"],
)
def test_a_bad_script_is_a_sentence(body: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    head = "import os, sys, time\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
    file.write_text(f"{head}{body}dist.barrier()\n")
    given = ["--hosts", "1", "--gpus-per-host", "2", "--timeout", "3 s", "--quiet", "--out", tmp_path / "out", file]
    done = command("real", *given)
    assert done.returncode == 1
    assert sentence.format(file=file) in done.stderr
    left = subprocess.run(["pgrep", "-f", str(file)], capture_output=True, text=True, check=False).stdout
    assert not left


UNRECORDED = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as hooked

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begun = None


def left():
    "Names of what is ours in torch."
    functions = {"Tensor.backward": torch.Tensor.backward, "autograd.backward": torch.autograd.backward, **vars(dist)}
    modules = {name: str(getattr(one, "__module__", "")) for name, one in functions.items()}
    found = {name for name, module in modules.items() if module.startswith(("real.", "scenarios."))}
    hooks = {name: one for name, one in vars(torch.nn.modules.module).items() if name.startswith("_global_")}
    return found | {name for name, one in hooks.items() if isinstance(one, dict) and one}


for step in range(9):
    if step > 3:  # behind the recorded ones: who makes groups, and who sees steps end
        assert left() == {"init_process_group", "new_group", "split_group", "shrink_group"} & {*vars(dist)}, left()
        assert len(hooked._global_optimizer_post_hooks) == 1
        assert not hooked._global_optimizer_pre_hooks
        assert sys.getprofile() is None and sys.gettrace() is None
    else:
        assert {"Tensor.backward", "_global_forward_hooks"} < left()
    optimizer.zero_grad()
    model(torch.full((4, 64), float(rank + step))).mean().backward()
    gradient = next(model.parameters()).grad
    gathered = [torch.empty_like(gradient) for _ in range(size)]
    dist.all_gather(gathered, gradient)
    assert all(torch.equal(each, gradient) for each in gathered)
    if begun is not None:  # in the step before
        begun.wait()
        assert total.tolist() == [size * (step - 1.0)] * 4
    total = torch.full((4,), float(step))
    begun = dist.all_reduce(total, async_op=True)
    mine = torch.tensor([float(rank)])
    dist.all_reduce(mine, group=dist.new_group([0, 1]))
    assert mine.item() == 1
    dist.barrier()
    {at_the_end}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("at_the_end", "timed"),
    [
        pytest.param("", 3, id="goes on"),
        pytest.param("assert step < 7, 'no more data'", 1, marks=pytest.mark.slow, id="fails on all ranks"),
        pytest.param("assert step < 7 or rank, 'no more data'", 0, marks=pytest.mark.slow, id="fails on one rank"),
    ],
)
def test_steps_are_timed_with_the_recording_off(at_the_end: str, timed: int, tmp_path: Path) -> None:
    """Of three recorded steps and those behind them; the script itself looks whether its calls do what they should."""
    script, scenario = tmp_path / "train.py", tmp_path / "light.toml"
    script.write_text(UNRECORDED.replace("{at_the_end}", at_the_end))
    scenario.write_text(
        "program = 'script'\n[run]\nsteps = 3\ntimeout = '20 s'\n[cluster]\nprofile = 'emulated_200mbit'\nhosts = 1\n"
        "gpus_per_host = 2\n[script]\npath = 'train.py'\nunrecorded_steps = 3\n"
    )
    done = command("real", "--quiet", "--out", tmp_path / "out", scenario)
    assert done.returncode == 0, done.stderr
    found = store.load(tmp_path / "out")
    assert found.steps["step"].tolist() == [0, 1, 2]
    complete = found.unrecorded_steps[found.unrecorded_steps["complete"]]
    assert complete["step"].tolist() == [5, 6, 7][:timed]
    assert found.spans.loc[found.spans["step"] >= 0, "label"].str.contains("train.py").any()
    of_calls = found.spans[~found.spans["kind"].isin(["compute", "step"])]
    assert (of_calls["issued_ns"] < found.steps["end_ns"].max()).all()
    logs = "".join(file.read_text() for file in (tmp_path / "out").glob("rank-*.log"))
    assert ("after its 3 recorded steps" in logs) == bool(at_the_end)
    assert set(timed_steps(found)["step"]) <= ({5, 6, 7} if timed == 3 else {0, 1, 2})


def test_a_world_of_another_size_is_refused(tmp_path: Path) -> None:
    """It would wait for ranks that nobody starts."""
    file = tmp_path / "wrong.py"
    file.write_text("import torch.distributed as dist\ndist.init_process_group('gloo', world_size=3, rank=0)\n")
    given = ["--hosts", "1", "--gpus-per-host", "2", "--quiet", file]
    done = command("sim", "--out", tmp_path / "out", *given)
    assert done.returncode == 1
    assert "wrong.py:2: ValueError: init_process_group: world_size = 3: expected 2" in done.stderr


BY_HAND = """
import torch
import torch.distributed as dist
import twinstep
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
for _ in range(4):
    model(torch.ones(2, 8)).sum().backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
        each.data -= 0.1 * each.grad
        each.grad = None
    twinstep.step()
future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
while not future.done():
    pass
"""


@pytest.mark.parametrize("words", [[], pytest.param(["--step-every", "all_reduce:3"], marks=pytest.mark.slow)])
@pytest.mark.supports("steps of hand-written loops: `twinstep.step()`, `--step-every`", "real")
def test_simulated_and_real_step_times_agree(words: list[str], tmp_path: Path) -> None:
    """Where the script marks it, or a call; what follows the last mark belongs to no step in either.

    Nor does the last call lack, although the library's thread, which says when it ended, may not have had its turn yet.
    """
    file = tmp_path / "train.py"
    file.write_text(BY_HAND.lstrip())
    given = ["--hosts", "1", "--gpus-per-host", "2", "--profile", "emulated_200mbit", "--steps", "9", "--quiet", *words]
    for room in ("sim", "real"):
        done = command(room, *given, "--out", tmp_path / room, file)
        assert done.returncode == 0, done.stderr
    real, simulated = (store.load(tmp_path / room) for room in ("real", "sim"))
    assert real.steps["step"].tolist() == simulated.steps["step"].tolist() == [0, 1, 2][: 2 if words else 3]
    for rank in range(2):
        pd.testing.assert_frame_equal(calls(real, rank), calls(simulated, rank))
        assert len(calls(real, rank)) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "for _ in range(4):\n    dist.all_reduce(torch.ones(4))\n",
            "{file}: no step was seen: the script ended at its",
        ),
        ("raise ValueError('no data')\n", "ranks 0 and 1: {file}:4: ValueError: no data\n  File"),
    ],
    ids=["no step", "raises"],
)
def test_mistake_of_all_ranks_is_reported_once(body: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(f"import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n{body}")
    done = command("real", "--hosts", "1", "--gpus-per-host", "2", "--quiet", "--out", tmp_path / "out", file)
    assert done.returncode == 1
    assert done.stderr.count(sentence.format(file=file)) == 1

"""`python -m sim SCENARIO --what-if`: each change is what the same change of the scenario predicts, to the ns."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import twinstep
from reports.sections.model import Fold, ReportTable
from reports.sections.run.changes import CHANGES
from reports.sections.run.headline import rests_on
from reports.sections.run.subject import RunView
from reports.study.measures import measures_of
from scenarios.config.load import load
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.toml.include import read_tree
from tests.commands import command
from tests.small import recommender
from twinstep.what_ifs.counterfactuals import counterfactuals

POPULAR = 'name = "popular"\nrows = 1_000_000\nids_per_sample = 20\nids = {zipf = 1.05}\n'
OTHERS = 'name = "others"\nrows = 10_000\nids_per_sample = 4\n'
SCRIPT = """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
device = torch.device("cuda", dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4096, 4096, device=device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(8, 4096, device=device)).sum().backward()
    optimizer.step()
"""
CHANGED = {
    *("as it is", "GPUs twice as fast", "network twice as fast", "links within hosts twice as fast"),
    *("no latency of links", "CUDA graphs with fixed numbers of ids", "no faults", "twice the hosts"),
    *("work perfectly balanced", "twice the batch per rank"),
    *("no skew of ids", "dense part in bfloat16 (autocast)", "gradients by PowerSGD of rank 4"),
    *("embeddings exchanged in 16 bits", "torch.compile"),
    *("next batch's ids sent during the step", "plan chosen by simulation"),
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(recommender(POPULAR, OTHERS, more="cluster.faults = [{host = 1, gpu = 0, speed = 0.9}]"))
    return file


def test_changes_equal_the_prediction_with_their_options(scenario: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = command("sim", scenario, "--seed", "3", "--what-if", "--json", "--out", run)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["what_if"]
    assert found == json.loads(command("reports", "show", run, "--json").stdout)["what_if"]  # kept in the run's folder
    assert {row["change"] for row in found} == CHANGED
    assert [row["status"] for row in found] == ["done"] * len(found)
    assert list(dict.fromkeys(row["group"] for row in found)) == ["", "setting", "hardware", "more", "diagnosis"]
    for group in ("setting", "hardware", "more", "diagnosis"):
        gains = [row["gain"] for row in found if row["group"] == group]
        assert gains == sorted(gains, reverse=True)
    assert (found[0]["change"], found[0]["gain"]) == ("as it is", 0)
    by_name = {row["change"]: row for row in found}
    kept = f"--set sharding.plan={run}/plan.json"
    assert by_name["network twice as fast"]["options"] == f"--set 'cluster.nic.rate=800 Gbit/s' {kept}"
    for name in (
        *("as it is", "network twice as fast", "no faults", "work perfectly balanced", "no skew of ids"),
        *("gradients by PowerSGD of rank 4", "twice the hosts"),
    ):
        out = tmp_path / name.replace(" ", "-")
        options = shlex.split(by_name[name]["options"])
        played = command("sim", "--quiet", "--out", out, scenario, "--seed", "3", *options)
        assert played.returncode == 0, played.stderr
        loaded = twinstep.load(out)
        assert (name == "work perfectly balanced") == ("perfectly balanced" in rests_on(loaded.info))
        measures = measures_of(loaded)
        keys = ("step_ns", "transfer_ns", "samples_per_s", "usd_per_1e9_samples")
        assert [by_name[name][key] for key in keys] == [measures[key] for key in keys]


def test_changes_are_shown_in_a_table_and_on_the_page(scenario: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = command("sim", scenario, "--what-if", "--full", "--out", run, "--set", "cluster.gpus_per_host=1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert any(line.startswith("as it is ") for line in lines)
    assert "plan chosen by simulation: --set sharding.choose=simulated" in " ".join(done.stdout.split())
    assert "largest single gains: free: " in done.stdout
    titles = [line for line in lines if line.startswith("One change at a time")]
    section = CHANGES.show(RunView.of(twinstep.load(run)), "page")
    assert section is not None
    (fold,) = [one for one in section.blocks if isinstance(one, Fold)]
    tables = [one for one in fold.blocks if isinstance(one, ReportTable)]
    assert [table.title for table in tables] == titles
    assert [title.partition(": ")[2].partition(",")[0] for title in titles] == [
        *("settings", "hardware", "twice the GPUs", "diagnosis")
    ]
    grids = [table.grid("page") for table in tables]
    assert [(grid.rows[0][0], [column.title for column in grid.columns[:4]]) for grid in grids] == [
        ("as it is", ["change", "step", "samples/s", "$"])
    ] * 4


def test_changes_are_planned_anew_where_that_is_requested(scenario: Path, tmp_path: Path) -> None:
    """Each as the planner plans the changed scenario, beside those that keep the plan."""
    run, words = tmp_path / "run", ("--set", "cluster.gpus_per_host=1", "--json", "--what-if")
    first = command("sim", scenario, *words, "--out", run)
    done = command("sim", scenario, *words, "--replan", "--out", run)
    assert (first.returncode, done.returncode) == (0, 0), done.stderr
    kept, both = ({row["change"]: row for row in json.loads(each.stdout)["what_if"]} for each in (first, done))
    anew = {name for name in both if name.endswith(", planned anew")}
    assert {*both} - {*kept} == anew
    assert {"network twice as fast, planned anew", "twice the batch per rank, planned anew"} <= anew
    assert not any(both[name]["group"] == "diagnosis" or "sharding.plan" in both[name]["options"] for name in anew)
    name = "network twice as fast, planned anew"
    again = command("sim", scenario, *words[:2], *shlex.split(both[name]["options"]), "--json", "--out", tmp_path / "1")
    assert both[name]["step_ns"] == json.loads(again.stdout)["steps"][-1]["step_ns"]


def test_what_cannot_be_planned_anew_is_a_sentence(scenario: Path, tmp_path: Path) -> None:
    for words, sentence in (
        ((scenario, "--replan"), "--replan: expected with --what-if, whose changes it plans anew"),
        (("all_to_all_4x2", "--what-if", "--replan"), "--replan: expected a scenario whose tables are planned"),
    ):
        done = command("sim", *words, "--out", tmp_path / "run")
        assert done.returncode == 2
        assert sentence in done.stderr


def test_quantities_are_doubled_as_they_are_written(scenario: Path) -> None:
    tree = read_tree(str(scenario), Overrides({})).tree
    changes = {one.name: one.values for one in counterfactuals(load(scenario), tree)}
    fast = changes["GPUs twice as fast"]
    assert (fast["cluster.gpu.memory_rate"], fast["cluster.gpu.flops.tf32"]) == ("6.7 TB/s", "989.4 TFLOP/s")
    assert changes["twice the hosts"] == {"cluster.hosts": 4}
    assert set(changes["no latency of links"].values()) == {"0 s"}


def test_the_recording_of_a_script_is_changed_as_a_scenario_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    first, again = tmp_path / "first", tmp_path / "again"
    done = command("sim", "--gpus-per-host", 2, "--profile", "dgx_h100", "--quiet", "--out", first, script)
    assert done.returncode == 0, done.stderr
    done = command("sim", first, "--what-if", "--json", "--out", again)
    assert done.returncode == 0, done.stderr
    found = {row["change"]: row for row in json.loads(done.stdout)["what_if"]}
    assert found["links within hosts twice as fast"]["options"] == "--set 'cluster.inside.rate=900 GB/s'"
    assert found["links within hosts twice as fast"]["gain"] > 0
    assert {row["status"] for row in found.values()} == {"done"}
    assert "twice the hosts" not in found  # it was recorded on one

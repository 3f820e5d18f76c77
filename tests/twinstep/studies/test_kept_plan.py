"""Changes of hardware keep the plan of the tables; what moves tables says how many."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import twinstep
from scenarios.config.load import load
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.scenario import Recommender
from scenarios.config.toml.include import read_tree
from scenarios.planner.plan import plan_tables
from scenarios.seam.trace import PlanRow
from tests.commands import command
from tests.reports.recordings import rows_as
from tests.small import recommender
from twinstep.studies.kept_plan import count_moved, kept_plan, places
from twinstep.studies.task import Result, Task
from twinstep.what_ifs.what_if import WhatIf

FASTER = {"cluster.nic.rate": "800 Gbit/s"}
# The planner places one of these tables otherwise where the network is twice as fast.
TYPES = 'sharding.types = ["row_wise", "table_row_wise", "table_wise"]'
TABLES = [(100_000, 50), (5_000_000, 20), (5_000_000, 4), (5_000_000, 4), (100_000, 1), (10_000, 20)]


def write(folder: Path, *, of_first: str = "") -> Path:
    file = folder / "moving.toml"
    tables = [
        f'name = "t{at}"\nrows = {rows}\nids_per_sample = {ids}\n{"" if at else of_first}'
        for at, (rows, ids) in enumerate(TABLES)
    ]
    file.write_text(recommender(*tables, batch_size=4096, more=TYPES))
    return file


@pytest.mark.slow
def test_a_faster_network_keeps_the_plan_though_the_planner_would_move_a_table(tmp_path: Path) -> None:
    file, run = write(tmp_path), tmp_path / "run"
    planned = [places(plan_tables(load(file, values)).rows) for values in ({}, FASTER)]
    assert count_moved(*planned) == 1
    done = command("sim", file, "--what-if", "--json", "--out", run)
    assert done.returncode == 0, done.stderr
    found = {row["change"]: row for row in json.loads(done.stdout)["what_if"]}
    faster = found["network twice as fast"]
    assert (faster["tables"], faster["tables_moved"]) == (6, 0)
    assert faster["step_ns"] <= found["as it is"]["step_ns"]
    again = [word for word in shlex.split(faster["options"]) if word != "--set"]
    values = dict(word.split("=", 1) for word in again)
    assert list(values) == ["cluster.nic.rate", "sharding.plan"]
    kept = twinstep.predict(file, **values)
    assert kept.steps["step_ns"].median() == faster["step_ns"]
    assert places(rows_as(PlanRow, kept.plan)) == planned[0]
    anew = twinstep.predict(file, **FASTER)
    assert anew.steps["step_ns"].median() != faster["step_ns"]
    hosts = found["twice the hosts"]
    assert (hosts["options"], hosts["tables"]) == ("--set cluster.hosts=4", 6)
    assert hosts["tables_moved"] > 0
    moved_by = {row["change"] for row in found.values() if row["tables_moved"]}
    assert moved_by <= {"twice the hosts", "plan chosen by simulation"}
    said = " ".join(command("reports", "show", run, "--full").stdout.split())
    assert f"twice the hosts ({hosts['tables_moved']} of 6 tables moved)" in said


def test_tables_that_do_not_fit_as_they_lie_are_placed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path)
    scenario, tree = load(file), read_tree(str(file), Overrides({})).tree
    before = places(plan_tables(scenario).rows)

    def play(task: Task) -> Result:
        if Recommender.of(task.scenario.workload).planner.plan is not None:
            return Result(status="scenario error", sentence="no room")
        return Result(status="done", measures={"step_ns": 1.0}, speeds=((1.0,),), places={**before, "t0": "elsewhere"})

    monkeypatch.setattr("twinstep.what_ifs.what_if.play_point", play)
    kept = kept_plan(scenario, tmp_path)
    what_if = WhatIf(
        load=lambda values: load(file, values), plan=kept, places=before, draws=0, gain=lambda _: (1.0, 1.0, 1.0)
    )
    twice = next(one for one in what_if.changes(scenario, tree) if one.name == "twice the batch per rank")
    row = what_if.play(twice)
    assert row is not None
    assert (row.status, row.options) == ("done", "--set run.batch_size=8192")
    assert (row.tables, row.tables_moved) == (6, 1)


def test_tables_of_a_program_of_ones_own_lie_somewhere_whatever_it_calls_their_sharding() -> None:
    places_of: dict[str, Any] = {
        "storage_bytes": 4,
        "perf_ms": 0.0,
        "ids_per_step": 0.0,
        "row_offset": 0,
        "column_offset": 0,
    }
    row = PlanRow(
        table="a", sharding_type="hashed", compute_kernel="mine", shard=0, rank=0, rows=1, columns=1, **places_of
    )
    assert count_moved(places([row]), places([replace(row, rank=1)])) == 1


@pytest.mark.parametrize("pin", ["ranks = [3]\n", "hosts = [1]\n"])
def test_pinned_tables_stay_in_a_plan_that_is_kept(pin: str, tmp_path: Path) -> None:
    file = write(tmp_path, of_first=pin)
    before = plan_tables(load(file))
    kept = plan_tables(load(file, kept_plan(load(file), tmp_path)))
    assert [table.shards for table in kept.tables] == [table.shards for table in before.tables]


@pytest.mark.slow
def test_a_plan_found_by_simulation_is_kept_as_it_was_found(tmp_path: Path) -> None:
    file, run = write(tmp_path), tmp_path / "run"
    simulated = "sharding.choose=simulated"
    done = command("sim", file, "--what-if", "--json", "--set", simulated, "--out", run)
    assert done.returncode == 0, done.stderr
    found = {row["change"]: row for row in json.loads(done.stdout)["what_if"]}
    faster = found["network twice as fast"]
    assert faster["tables_moved"] == 0
    options = shlex.split(faster["options"])
    assert options[2:] == ["--set", f"sharding.plan={run}/plan.json", "--set", "sharding.choose=estimated"]
    out = tmp_path / "again"
    again = command("sim", file, "--quiet", "--set", simulated, *options, "--out", out)
    assert again.returncode == 0, again.stderr
    assert twinstep.load(out).steps["step_ns"].median() == faster["step_ns"]

"""`sharding.choose = "simulated"`: the plan that is quickest in the simulator."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from pathlib import Path
from unittest.mock import Mock

import pytest

import twinstep
from reports.sections.run.headline import headline
from scenarios.config.load import load
from scenarios.config.scenario import Recommender, Scenario
from scenarios.planner.plan import plan_tables
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.tables.shard_price import shard_kernels
from sim.run import simulate
from tests.commands import command
from tests.small import change, model_of, recommender
from twinstep.plan_choice import Choice, Tried, choose_plan, with_simulated_plan
from twinstep.plan_choice.shard_options import column_widths


def file_of(folder: Path, more: str = "", tables: int = 40, gpus: int = 4) -> Path:
    """Tables of which a few have most of the ids; a host that launched step by step would hide where they lie."""
    draw = random.Random(7)
    keys = []
    for number in range(tables):
        rows, ids = int(10 ** draw.uniform(3, 6.5)), int(10 ** draw.uniform(0, 2))
        keys.append(f'name = "t{number}"\nrows = {rows}\nids_per_sample = {ids}\n')
    file = folder / "model.toml"
    file.write_text(recommender(*keys, batch_size=256, gpus=gpus) + "[launching]\ncuda_graphs = true\n" + more)
    return file


def step_ns(scenario: Scenario) -> int:
    last = [one for one in simulate(scenario, build(scenario)).spans if one.kind == "step" and one.step == 1]
    return max(one.end_ns for one in last) - min(one.start_ns for one in last)


def test_the_chosen_plan_is_faster_than_the_planners(tmp_path: Path) -> None:
    """Which is the first of those that are tried; and each takes what a run of it takes."""
    scenario = load(file_of(tmp_path))
    choice = choose_plan(scenario, tmp_path)
    assert choice.tried[0].plan == plan_tables(scenario)
    assert choice.tried[0].step_ns == step_ns(scenario)
    assert choice.best.step_ns == min(tried.step_ns for tried in choice.tried)
    assert choice.gain > 0.03
    asked = change(scenario, planner=dataclasses.replace(Recommender.of(scenario.workload).planner, choose="simulated"))
    with with_simulated_plan(asked) as planned:
        assert step_ns(planned.scenario) == choice.best.step_ns
        assert planned.notes[0].startswith(f"{choice.sentence}; the search took ")
    with with_simulated_plan(scenario) as planned:
        assert planned == (scenario, ())


def test_the_sentence_says_where_the_planners_own_plan_does_not_fit() -> None:
    tried = Tried(name="sharding.reserved_share = 0.5", expected_ms=1.0, step_ns=2_000_000, plan=Mock())
    choice = Choice(best=dataclasses.replace(tried, step_ns=1_000_000), tried=(tried,))
    own = "the planner's own does not fit, but takes 2 ms with sharding.reserved_share = 0.5"
    assert choice.sentence == f"plan: the fastest of 1 simulated, 1 ms per step; {own}"


def test_cache_fills_are_levelled(tmp_path: Path) -> None:
    """Rows in host memory, of which tables with many ids miss many."""
    cached = 'kernel = "fused_uvm_caching"\nids_per_sample ='
    file = file_of(tmp_path)
    file.write_text(file.read_text().replace("ids_per_sample =", cached))
    choice = choose_plan(load(file, {"model.tables[*].cache_load_factor": 0.1}), tmp_path)
    assert choice.best.name.startswith("levelled")
    assert choice.gain > 0.1


def test_where_replicas_are_averaged_seldom_the_mean_step_counts(tmp_path: Path) -> None:
    """From one averaging to the next, however few steps the scenario has."""
    scenario = load(
        file_of(tmp_path), {"replication.sharding_group_size": 4, "replication.sync_every": 4, "run.steps": 2}
    )
    choice = choose_plan(scenario, tmp_path)
    whole = scenario.with_run(steps=8)
    spans = [one for one in simulate(whole, build(whole)).spans if one.kind == "step" and one.step >= 4]
    period_ns = max(one.end_ns for one in spans) - min(one.start_ns for one in spans)
    assert choice.tried[0].step_ns == pytest.approx(period_ns / 4, rel=0.03)  # ids differ from step to step
    assert choice.tried[0].step_ns > 1.5 * step_ns(scenario)  # whose second step averages nothing
    assert choice.best.step_ns == min(tried.step_ns for tried in choice.tried)


def test_pinned_tables_stay_where_they_are(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    file.write_text(file.read_text().replace('name = "t3"\n', 'name = "t3"\nranks = [1, 2]\n'))
    choice = choose_plan(load(file), tmp_path)
    assert len(choice.tried) > 2
    for tried in choice.tried:
        assert [row.rank for row in tried.plan.table("t3").shards] == [1, 2]


def test_a_run_keeps_the_plan_for_others(tmp_path: Path) -> None:
    """Which with it are runs of the same scenario, to the ns."""
    chosen = file_of(tmp_path, '[sharding]\nchoose = "simulated"\n')
    done = command("sim", "--out", tmp_path / "run", chosen)
    assert done.returncode == 0, done.stderr
    assert "the fastest of" in " ".join(done.stdout.split())
    found = twinstep.load(tmp_path / "run")
    assert any("the fastest of" in line and "the search took" in line for line in headline(found))
    given = twinstep.predict(file_of(tmp_path, '[sharding]\nplan = "run/plan.json"\n'))
    assert given.info.digest == found.info.digest
    assert given.steps["step_ns"].tolist() == found.steps["step_ns"].tolist()


def test_tables_keep_the_types_that_they_may_take(tmp_path: Path) -> None:
    """So that nothing is cut or copied here, and phases are levelled none the less."""
    choice = choose_plan(load(file_of(tmp_path, '[sharding]\ntypes = ["table_wise"]\n')), tmp_path)
    assert {table.sharding_type for tried in choice.tried for table in tried.plan.tables} == {"table_wise"}
    assert choice.best.name == "levelled"
    assert choice.gain > 0


def test_a_table_that_no_rank_holds_is_cut_by_rows(tmp_path: Path) -> None:
    huge = '[[model.tables]]\nname = "huge"\nrows = 600_000_000\nids_per_sample = 2\n'
    choice = choose_plan(load(file_of(tmp_path, huge)), tmp_path)
    levelled = [tried for tried in choice.tried if tried.name.startswith("levelled")]
    assert levelled
    for tried in levelled:
        assert len(tried.plan.table("huge").shards) in (4, 8)
        assert max(tried.plan.storage_bytes) <= tried.plan.capacity_bytes


def test_columns_are_cut_down_to_what_a_look_up_reads(tmp_path: Path) -> None:
    """Unless the scenario says how narrow they may be."""
    model = model_of(load(file_of(tmp_path)))
    assert model is not None
    for dim, least, widths in (
        (64, 128, [32]),
        (128, 128, [64, 32]),
        (128, 64, [64]),
        (256, 100, [128]),
        (48, 128, []),
        (96, 128, [48, 32]),
    ):
        assert column_widths(dataclasses.replace(model.tables[0], dim=dim, min_partition=least)) == widths


@pytest.mark.parametrize("kind", ["table_wise", "row_wise", "table_row_wise"])
def test_kernels_of_shards_add_up_to_those_of_ranks(kind: str, tmp_path: Path) -> None:
    scenario = load(file_of(tmp_path, f'[sharding]\ntypes = ["{kind}"]\n'), {"ranks": "alike"})
    program = build(scenario)
    spans = [one for one in simulate(scenario, program).spans if one.step == 1 and one.kind == "compute"]
    numbers = {f"t{number}": number for number in range(40)}
    read: defaultdict[tuple[int, int], float] = defaultdict(float)
    for row in program.plan:
        rows = range(row.row_offset, row.row_offset + row.rows)
        columns = range(row.column_offset, row.column_offset + row.columns)
        kernels = shard_kernels(scenario, numbers[row.table], row.sharding_kind, rows, columns)
        for place, (kernel, said) in enumerate(zip(kernels, (row.look_up_bytes, row.update_bytes), strict=True)):
            moved = kernel.bytes_read + kernel.bytes_written
            assert said + kernel.bytes_reread == pytest.approx(moved, rel=0.02)  # blocks of rows as the first
            read[row.rank, place] += moved
    for place, name in enumerate((f"{kind}.lookup", f"{kind}.update")):
        found = {one.rank: one.bytes_read + one.bytes_written for one in spans if one.label == name}
        assert found
        for rank, size in found.items():
            assert size == pytest.approx(read[rank, place], rel=0.01)


def test_elsewhere_it_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"sharding.choose = 'simulated': expected twinstep predict, whose run folder"
    ):
        build(load(file_of(tmp_path, '[sharding]\nchoose = "simulated"\n')))
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(
        ScenarioError, match=r"sharding.choose = 'simulated': expected 'estimated' beside sharding.plan"
    ):
        load(file_of(tmp_path, '[sharding]\nchoose = "simulated"\nplan = "plan.json"\n'))

"""A script's plan beside ours, of tables that are described as the script's process describes them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from scenarios.config.scenario import Feature, Recommender, Scenario
from scenarios.planner.plan import plan_tables
from scenarios.seam.trace import PlanRow
from scenarios.workloads.script.plan_from_script import rate_plans
from scenarios.workloads.script.process.torchrec_plan import _shards
from tests.scenarios.planner.test_plan import MIB, cluster, scenario, table
from tests.small import change

IDS, BATCH = {"t0": 4.0, "t1": 2.0}, 64


def row(name: str, rank: int, kind: str = "table_wise", **changes: Any) -> PlanRow:
    usual: dict[str, Any] = {"compute_kernel": "fused", "shard": 0, "row_offset": 0, "column_offset": 0}
    usual |= {"rows": 1000, "columns": 64, "storage_bytes": 256_000, "perf_ms": 0.0, "ids_per_step": 0.0}
    return PlanRow(table=name, sharding_type=kind, rank=rank, **{**usual, **changes})


def describe(*rows: PlanRow, **changes: Any) -> dict[str, Any]:
    """By default both tables on the first of 8 ranks."""
    placed = rows or (row("t0", 0), row("t1", 0))
    usual = {"load_factor": None, "dtype": "FP32", "is_pooled": True, "is_weighted": False}
    names = dict.fromkeys(each.table for each in placed)
    tables = [{**usual, "name": name, "features": {f"f_{name}": IDS[name]}} for name in names]
    whole = {"tables": tables, "batch_size": BATCH, "ranks": [8], "optimizers": ["EXACT_SGD"]}
    return {"rows": [asdict(each) for each in placed], **whole, **changes}


def request(**changes: Any) -> Scenario:
    """What a script's scenario is: without tables."""
    return change(scenario([table("t", 1)], cluster(**changes)), model=None, batch_size=0)


def as_scenario() -> Scenario:
    """Program `dlrm` of the same tables."""
    tables = [
        replace(table(name, 1000, ids=ids), features=(Feature(name=f"f_{name}", ids_per_sample=ids),))
        for name, ids in IDS.items()
    ]
    made = scenario(tables, optimizer="sgd")
    return change(made, planner=Recommender.of(request().workload).planner, batch_size=BATCH)


def busiest(rows: tuple[PlanRow, ...]) -> float:
    return max(sum(row.perf_ms for row in rows if row.rank == rank) for rank in range(8))


def test_ours_is_that_of_program_dlrm_and_both_are_rated() -> None:
    found = rate_plans(describe(), request())
    assert found.own == plan_tables(as_scenario()).rows
    costs = ("perf_ms", "ids_per_step", "forward_ms", "backward_ms", "look_up_bytes", "update_bytes")
    free: dict[str, Any] = dict.fromkeys(costs, 0.0)
    assert [replace(each, storage_bytes=0, **free) for each in found.rows] == [
        replace(row(name, 0), storage_bytes=0) for name in IDS
    ]
    assert all(each.perf_ms > each.forward_ms > 0 and each.backward_ms > 0 for each in found.rows)
    assert [each.ids_per_step for each in found.rows] == [8 * BATCH * ids for ids in IDS.values()]
    assert busiest(found.rows) > busiest(found.own) > 0
    types = "data_parallel, table_wise, column_wise, table_column_wise, row_wise, table_row_wise, grid_shard"
    assert found.notes == (
        "64 samples per rank, ids as in rank 0's first step",
        f"ours may choose among {types}",
    )


def test_a_table_without_shards_leaves_the_plan_as_it_is() -> None:
    found = describe()
    found["rows"] = [each for each in found["rows"] if each["table"] != "t1"]
    plan = rate_plans(found, request())
    assert (plan.rows, plan.own) == ((row("t0", 0),), ())
    assert plan.notes == ("not planned anew: no shard of t1 was seen",)


def test_a_copied_table_has_the_size_of_its_own_module() -> None:
    """Module `ebc` stands beside `old_ebc` and `old.ebc`, whose tables have the same name."""
    sizes = {"old_ebc": (5, 2), "old.ebc": (6, 4), "ebc": (7, 3)}
    state = {f"{path}.embedding_bags.t0.weight": torch.empty(size) for path, size in sizes.items()}
    parameter = Mock(sharding_spec=None, ranks=[0, 1], sharding_type="data_parallel", compute_kernel="dense")
    for path, size in sizes.items():
        shards = [*_shards(Mock(state_dict=lambda: state), path, "t0", parameter)]
        assert [(each.rank, each.rows, each.columns) for each in shards] == [(0, *size), (1, *size)]


def test_weighted_bags_are_rated_so_in_either_plan() -> None:
    tables = describe(row("t0", 0))["tables"]
    weighted = rate_plans(describe(row("t0", 0), tables=[{**tables[0], "is_weighted": True}]), request(hosts=1, gpus=1))
    assert not weighted.own  # of 8 ranks there is one
    one = {"rows": [asdict(row("t0", 0))], "ranks": [1]}
    on_one = rate_plans(
        {**describe(row("t0", 0), tables=[{**tables[0], "is_weighted": True}]), **one}, request(hosts=1, gpus=1)
    )
    plain = rate_plans({**describe(row("t0", 0)), **one}, request(hosts=1, gpus=1))
    assert busiest(on_one.rows) > busiest(plain.rows)
    assert busiest(on_one.own) <= busiest(on_one.rows)


def test_assumptions_are_noted() -> None:
    tables = describe()["tables"]
    tables[0] |= {"dtype": "FP16", "features": {"a": None, "b": 3.0}}
    tables[1] |= {"dtype": None, "features": {}, "is_pooled": False}
    rows = (row("t0", 0, compute_kernel="key_value"), row("t1", 0))
    found = rate_plans(describe(*rows, tables=tables, optimizers=["ADAM", "SHAMPOO"]), request())
    assert found.notes == (
        "elements of type FP16 and unknown are planned as float16",
        "kernel key_value is rated as fused",
        "64 samples per rank, ids as in rank 0's first step",
        "ids per sample of a, t1 are unknown: 1 is assumed",
        found.notes[4],
        "ours may choose of tables that are not pooled among data_parallel, table_wise, row_wise, column_wise",
        "tables have optimizers ADAM, SHAMPOO: all are planned with the largest",
    )
    assert [each.compute_kernel for each in found.rows] == ["key_value", "fused"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 0}, "not planned anew: no batch reached the tables"),
        ({"ranks": [2, 4]}, "not planned anew: tables are shared by 2 and 4 of 8 ranks"),
    ],
)
def test_without_what_a_planner_needs_the_script_s_stays_as_it_is(changes: dict[str, Any], said: str) -> None:
    found = rate_plans(describe(**changes), request())
    assert (found.rows, found.own, found.notes) == ((row("t0", 0), row("t1", 0)), (), (said,))


def test_tables_that_fit_nowhere_are_a_sentence() -> None:
    found = rate_plans(describe(row("t0", 0, rows=10**9)), request(memory_bytes=MIB))
    assert not found.own
    assert busiest(found.rows) > 0
    assert "TorchRec's plan does not fit: rank 0 holds" in found.notes[2]
    assert found.notes[3].startswith("no plan of ours: ")
    assert "expected table 't0' to fit into 8 ranks" in found.notes[3]


def test_a_place_that_no_sharding_type_has_is_a_sentence() -> None:
    rows = (row("t0", 0), row("t0", 1), row("t1", 2))
    found = rate_plans(describe(*rows), request())
    assert found.rows == rows
    assert found.own
    assert found.notes[2].endswith("table 't0' (table_wise): expected one shard, not 2")

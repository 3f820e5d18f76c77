"""What the planner said of tables beside what a step says: parts of a pass add up to it, and go by bytes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.analysis.table_costs import PARTS
from reports.run import Run
from reports.terminal import text
from scenarios.config.load import load
from scenarios.seam.trace import PlanRow, Recording
from scenarios.workloads.build import build
from sim.run import simulate
from tests.reports.recordings import by_hand, span
from tests.reports.shown import as_json, summarize


def two_ranks() -> Recording:
    """Rank 0 has tables a and b, rank 1 a's other columns; rank 1 comes to the exchange 10 ns late."""
    recording = by_hand()

    def row(table: str, rank: int, **changes: Any) -> PlanRow:
        known = {"table": table, "rank": rank, "sharding_type": "column_wise", "perf_ms": 6.0}
        moved = {"forward_ms": 1.0, "backward_ms": 2.0, "look_up_bytes": 100.0, "update_bytes": 100.0}
        return dataclasses.replace(recording.plan[0], **{**known, **moved, **changes})

    def step(rank: int, late: int) -> list[Any]:
        own = {"sharding": "column_wise"}
        return [
            span(rank, "step", 0, 100),
            span(rank, "compute", 0, 40 + late, role="lookup", **own),
            span(rank, "all_to_all_single", 40 + late, 60, group="world", call=1, role="rows", **own),
            span(rank, "compute", 60, 80, role="gradients", **own),  # of all columns at once, no table's
            span(rank, "compute", 80, 90, role="update", **own),
        ]

    plan = [row("a", 0, look_up_bytes=300.0), row("b", 0, perf_ms=4.0), row("a", 1)]
    return dataclasses.replace(recording, plan=plan, spans=[*step(0, 0), *step(1, 10)], metrics=[])


def test_a_pass_is_shared_by_bytes_and_a_call_by_what_is_expected_of_it() -> None:
    run = Run.of(two_ranks())
    costs = run.table_costs_of(0).set_index("table")
    assert costs["rank"].to_dict() == {"a": 1, "b": 0}  # on rank 0 it takes 30 + 5 + 7.5 ns, on rank 1 50 + 10 + 10
    a, b = costs.loc["a"], costs.loc["b"]
    assert [a[f"step_{part}_ns"] for part in PARTS] == [50, 10, 10]
    assert [b[f"step_{part}_ns"] for part in PARTS] == [10, 5, 2.5]
    assert [a[f"planner_{part}_ns"] for part in PARTS] == [1e6, 2e6, 3e6]
    assert [b[f"planner_{part}_ns"] for part in PARTS] == [1e6, 2e6, 1e6]


def test_the_busiest_rank_differs() -> None:
    found = Run.of(two_ranks()).busiest_of(0).set_index("by")
    assert found["rank"].to_dict() == {"planner": 0, "step": 1}
    assert found["busiest_over_mean"].to_dict() == {"planner": pytest.approx(6 / 4.5), "step": pytest.approx(60 / 55)}


def test_costs_of_tables_are_in_the_terminal_and_in_json() -> None:
    run = Run.of(two_ranks())
    shown = " ".join(text.as_text(summarize(run)).split())
    assert "Tables: planned / in the step" in shown
    assert "1.00 ms / 10 ns 2.00 ms / 5 ns 1.00 ms / 2 ns" in shown
    assert "bottleneck rank / mean: 1.33 by the planner (rank 0, 6.00 ms), 1.09 in step 0 (rank 1, 60 ns)." in shown
    assert [row["table"] for row in as_json(run)["table_costs"]] == ["a", "b"]


def test_where_nothing_is_known_of_shards_there_is_nothing() -> None:
    run = Run.of(by_hand())
    assert not len(run.table_costs_of(0))
    assert not len(run.busiest_of(0))
    assert "planner said" not in text.as_text(summarize(run))


def test_of_a_simulated_step_parts_add_up_to_what_ranks_spend() -> None:
    scenario = load(Path("scenarios/library/criteo_dlrm_2x4.toml"))
    run = Run.of(simulate(scenario, build(scenario)))
    costs, spans = run.table_costs_of(1), run.spans
    assert len(costs) == 26  # of which some are cut over a host
    of_step = spans[(spans["step"] == 1).to_numpy(bool)]
    costs = costs[(costs["sharding_type"] == "table_wise").to_numpy(bool)]
    for part, label in ("look_up", "table_wise.lookup"), ("update", "table_wise.update"):
        own = of_step[(of_step["label"] == label).to_numpy(bool)]
        spent = (own["end_ns"] - own["start_ns"]).groupby(own["rank"]).sum().astype("float64")
        pd.testing.assert_series_equal(costs.groupby("rank")[f"step_{part}_ns"].sum(), spent, check_names=False)

"""A plan in runs is read as the plan that lists every shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scenarios.planner.placed import next_row
from scenarios.run_length import Runs, run_count
from scenarios.seam.trace import PlanRow
from scenarios.sparse.tables import ShardedTable, TableShard, layouts, tables_of_plan

RUN: dict[str, Any] = {"table": "a", "compute_kernel": "fused", "storage_bytes": 0, "perf_ms": 0.0, "ids_per_step": 0.0}
Runlike = tuple[int, dict[str, int]]
WHOLE: dict[str, list[Runlike]] = {
    "data_parallel": [(4, {"rows": 5})],
    "row_wise": [(2, {"rows": 2}), (1, {"rank": 2, "row_offset": 4, "rows": 1}), (1, {"rank": 3, "row_offset": 5})],
}


def plan_of_table(kind: str, runs: Sequence[Runlike]) -> Runs[PlanRow]:
    """A plan of one table in runs, [5, 3] if it is whole."""
    where = {"shard": 0, "rank": 0, "row_offset": 0, "column_offset": 0, "rows": 0, "columns": 3}
    first = [{**RUN, **where, "sharding_type": kind, **given, "shard": given.get("rank", 0)} for _, given in runs]
    rows = [PlanRow(**fields) for fields in first]
    return Runs([(count, row) for (count, _), row in zip(runs, rows, strict=True)], next_row)


@pytest.mark.parametrize("kind", WHOLE)
def test_a_plan_in_runs_gives_the_tables_and_layouts_of_its_rows(kind: str) -> None:
    plan = plan_of_table(kind, WHOLE[kind])
    tables, listed = tables_of_plan(plan), tables_of_plan(list(plan))
    assert tables == listed
    assert (tables[0].rows, tables[0].dim) == (5, 3)
    assert run_count(tables[0].shards) == len(WHOLE[kind]) < run_count(listed[0].shards)
    assert layouts(tables, 4, 2) == layouts(listed, 4, 2)


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        ("data_parallel", [(3, {"rows": 5})]),
        ("data_parallel", [(5, {"rows": 5})]),
        ("data_parallel", [(2, {"rows": 5}), (2, {"rank": 2, "rows": 4})]),
        ("data_parallel", [(4, {"rows": 5, "rank": 1})]),
        ("row_wise", [(4, {"rows": 1, "row_offset": 1})]),
        ("row_wise", [(3, {"rows": 1}), (1, {"rank": 3, "row_offset": 3, "rows": 2})]),
        ("row_wise", [(2, {"rows": 2}), (2, {"rank": 2, "row_offset": 4, "rows": 1})]),
    ],
)
def test_runs_are_refused_as_their_rows_are(kind: str, runs: Sequence[Runlike]) -> None:
    plan = plan_of_table(kind, runs)
    for tables in (tables_of_plan(plan), tables_of_plan(list(plan))):
        with pytest.raises(ValueError, match=rf"^table 'a' \({kind}\): .* expected "):
            layouts(tables, 4, 2)


def test_the_last_of_a_run_is_looked_at() -> None:
    first = TableShard(rank=0, row_offset=0, rows=3, column_offset=0, columns=3)
    shards = Runs([(2, first)], lambda shard, index: replace(shard, rank=index, row_offset=3 * index))
    table = ShardedTable(name="a", rows=5, dim=3, sharding_type="row_wise", shards=shards)
    with pytest.raises(ValueError, match=r".") as caught:
        layouts([table], 2, 2)
    assert str(caught.value) == "table 'a' (row_wise): rows 3 to 6 on rank 1, expected rows 3 to 5 on rank 1"

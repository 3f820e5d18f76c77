"""Memory by part and rank: what is asked of some ranks is what all ranks have there."""

from __future__ import annotations

import pytest

from scenarios.config.scenario import QComms
from scenarios.planner.plan import plan_tables
from scenarios.seam.memory import MemoryPart
from scenarios.workloads.dlrm.memory import memory_rows
from tests.scenarios.planner.test_plan import cluster, scenario, table
from tests.small import change

DENSE = [MemoryPart("weights", 1000), MemoryPart("temporaries", 50, "backward")]
TABLES = [table("copied", 30, ["data_parallel"]), table("cut", 5000, ["table_row_wise"]), table("whole", 9)]


def test_some_ranks_have_what_they_have_among_all() -> None:
    asked = scenario(TABLES, cluster(3, 2))
    plan, ranks = plan_tables(asked), [5, 0, 2]
    every = memory_rows(asked, plan.rows, DENSE)
    assert {row.rank for row in every} == set(range(6))
    some = memory_rows(asked, plan.rows_for(ranks), DENSE, ranks)
    assert list(some) == [row for rank in ranks for row in every if row.rank == rank]


@pytest.mark.parametrize("rank", range(6))
def test_the_weights_of_a_rank_are_those_of_its_shards(rank: int) -> None:
    asked = scenario(TABLES, cluster(3, 2))
    plan = plan_tables(asked)
    rows = memory_rows(asked, plan.rows, DENSE, [rank])
    sizes = {row.part: row.size_bytes for row in rows}
    assert sizes["embedding weights"] == plan.weight_bytes[rank]
    assert sizes["embedding optimizer"] == plan.optimizer_bytes[rank]


def test_quantized_and_original_buffers_are_both_held() -> None:
    """Forward 40 bytes for each 32 elements, back 2 for each, of all samples; a table on all ranks sends nothing."""
    asked = scenario(TABLES, cluster(3, 2))
    coded = change(asked, qcomms=QComms(forward_precision="int8", backward_precision="bf16"))
    plan = plan_tables(asked)
    plain, held = (
        {row.rank: row.size_bytes for row in memory_rows(one, plan.rows, DENSE) if row.part == "sparse buffers"}
        for one in (asked, coded)
    )
    samples = asked.run.batch_size * asked.cluster.world_size
    for rank in range(6):
        columns = sum(row.columns for row in plan.rows if row.rank == rank and row.sharding_type != "data_parallel")
        assert held[rank] == plain[rank] + round(samples * columns * (40 / 32 + 2))
    assert max(held.values()) > min(held.values())

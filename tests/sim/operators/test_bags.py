"""The law of table-batched embeddings: distinct rows, and tables that differ."""

from __future__ import annotations

import math

from scenarios.seam.operations.bags import BagsBackward, BagsForward, mix_bags, uniform
from sim.operators.laws import seconds
from tests.sim.operators.rows import H200, PUBLISHED, rows
from tests.sim.operators.test_laws import bags
from twinstep.published.operators.embeddings import describe


def test_expected_distinct_rows_equal_the_counted_ones() -> None:
    for row in rows(PUBLISHED / "h200_tbe.csv"):
        if not row["zipf"]:
            drawn = describe(row | {"unique_first_table": ""}, is_backward=False).operations[0]
            assert isinstance(drawn, BagsForward)
            assert math.isclose(drawn.bags.unique, drawn.bags.tables * int(row["unique_first_table"]), rel_tol=0.01)


# MLPerf's tables, rows up to 10 million, and ids a bag; kernels of a step of 4,096 samples on the H200, us.
CRITEO = (
    *((10_000_000, 3), (39_060, 2), (17_295, 1), (7_424, 2), (20_265, 6), (3, 1), (7_122, 1), (1_543, 1), (63, 1)),
    *((10_000_000, 7), (3_067_956, 3), (405_282, 8), (10, 1), (2_209, 6), (11_938, 9), (155, 5), (4, 1), (976, 1)),
    *((14, 1), (10_000_000, 12), (10_000_000, 100), (10_000_000, 27), (590_152, 10), (12_973, 3), (108, 1), (36, 1)),
)
CRITEO_LOOK_UP_US, CRITEO_UPDATE_US = 133.2, 446.6


def test_tables_that_differ_are_within_10_percent() -> None:
    call = mix_bags([uniform(tables=1, rows=rows, dim=128, bags=4096, length=length) for rows, length in CRITEO])
    assert call.ids == 4096 * 214
    look_up = seconds(BagsForward(bags=call, checks_bounds=False), H200) * 1e6
    assert abs(look_up / CRITEO_LOOK_UP_US - 1) < 0.1
    assert seconds(BagsBackward(bags=call), H200) * 1e6 > CRITEO_UPDATE_US
    assert mix_bags([bags(), bags()]) == bags(tables=16)

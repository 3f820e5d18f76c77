"""Drawn ids at the ends of what a scenario may ask for."""

from __future__ import annotations

import numpy as np
import pytest

from scenarios.config.scenario import Ids, Table
from scenarios.workloads.dlrm.batches import draw_ids, draw_zipf
from scenarios.workloads.dlrm.ids.shuffle import Shuffle


@pytest.mark.parametrize("rows", [7, 40_000_000, 10**10, 1 << 41])
def test_shuffled_rows_of_huge_tables_do_not_overflow(rows: int) -> None:
    ids = Ids(kind="zipf", exponent=0.2, order="shuffled")
    table = Table(name="huge", rows=rows, dim=4, ids_per_sample=1.0, ids=ids, sharding=("row_wise",))
    found = draw_ids(np.random.default_rng(1), table, 1000)
    ranks = draw_zipf(np.random.default_rng(1), rows, 0.2, 1000)
    shuffle = Shuffle.of(table)
    assert found.tolist() == [(shuffle.offset + int(rank) * shuffle.step) % rows for rank in ranks]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 60.0, 100.0])
def test_steep_distributions_are_drawn_without_a_warning(exponent: float) -> None:
    drawn = draw_zipf(np.random.default_rng(1), 10**9, exponent, 1000)
    assert drawn.min() >= 0
    assert drawn.max() < (10**9 if exponent < 2 else 5)

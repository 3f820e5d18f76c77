from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.run import Run
from scenarios.seam.trace import PlanRow, Recording
from tests.reports.recordings import PATIENT, by_hand, info


def test_the_worst_rank_is_held_against_the_mean_of_all_ranks():
    balance = Run.of(by_hand(world_size=4)).imbalance
    assert balance["measure"].tolist() == ["ids_per_step", "perf_ms", "storage_bytes"]
    assert balance["worst_rank"].tolist() == [1, 1, 1]
    assert balance["worst"].tolist() == [300.0, 2.0, 8192.0]
    assert balance["mean"].tolist() == [100.0, 0.75, 3072.0]  # ranks 2 and 3 have no shard and count
    assert balance["max_over_mean"].tolist() == [3.0, 2 / 0.75, 8192 / 3072]


def test_a_table_causes_what_the_worst_rank_carries_of_it_over_the_mean():
    causes = Run.of(by_hand()).imbalance_causes
    ids = causes[causes["measure"] == "ids_per_step"]
    assert ids["table"].tolist() == ["t1", "t0"]
    assert ids["on_worst_rank"].tolist() == [300.0, 0.0]
    assert ids["mean"].tolist() == [150.0, 50.0]
    assert ids["excess"].tolist() == [150.0, -50.0]
    assert ids["excess_share"].tolist() == [1.5, -0.5]


def test_without_a_plan_there_is_nothing_to_balance():
    run = Run.of(Recording(info=info()))
    assert len(run.imbalance) == len(run.imbalance_causes) == 0


SHARDS = st.lists(
    st.builds(
        PlanRow,
        table=st.sampled_from("abc"),
        sharding_type=st.sampled_from(["table_wise", "row_wise"]),
        compute_kernel=st.just("fused"),
        shard=st.integers(0, 3),
        rank=st.integers(0, 3),
        row_offset=st.just(0),
        column_offset=st.just(0),
        rows=st.just(1),
        columns=st.just(1),
        storage_bytes=st.integers(0, 1000),
        perf_ms=st.floats(0, 10),
        ids_per_step=st.floats(0, 1000),
    ),
    min_size=1,
)


@PATIENT
@given(SHARDS)
def test_excesses_of_all_tables_add_up_to_the_imbalance(plan):
    run = Run.of(Recording(info=info(world_size=4), plan=plan))
    rows: list[Any] = list(run.imbalance.itertuples())
    for row in rows:
        assert row.max_over_mean >= 1 - 1e-12
        causes = run.imbalance_causes[run.imbalance_causes["measure"] == row.measure]
        assert causes["excess"].sum() == pytest.approx(row.worst - row.mean, abs=1e-6)
        assert np.all(np.diff(causes["excess"]) <= 0)

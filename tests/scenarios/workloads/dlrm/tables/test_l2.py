"""Rows that a look-up reads from memory: as of a simulated LRU cache that begins empty, and what must hold of them."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.scenario import Feature, Ids, Table
from scenarios.workloads.dlrm.batches import draw_bags
from scenarios.workloads.dlrm.ids.distinct import distinct_rows, expected_ids
from scenarios.workloads.dlrm.tables.caching import count_fetched_rows
from tests.scenarios.workloads.dlrm.tables.test_caching import LAWS, ROWS, table
from tests.sim.test_dlrm_steps import training
from tests.small import GPU, change, cluster, model_of

SAMPLES = 16_384
ERROR = 0.03  # over 16,384 samples; others draw 0.5 % fewer or more


def fetched_by_lru(one: Table, room: int) -> int:
    """How many of one drawn batch's rows a cache of so many does not have."""
    made = training(("table_wise",), batch_size=SAMPLES)
    model = dataclasses.replace(model_of(made), tables=(one,))
    drawn = draw_bags(change(made, cluster=cluster(1, 1, gpu=GPU), model=model), 0, 0, 0)
    held: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for row in drawn.ids.tolist():
        missed += row not in held
        held[row] = None
        held.move_to_end(row)
        if len(held) > room:
            held.popitem(last=False)
    return missed


@pytest.mark.parametrize("room", [500, 4_000, ROWS])
@pytest.mark.parametrize("law", LAWS)
def test_rows_are_those_that_an_lru_cache_misses(law: str, room: int) -> None:
    one = table(*LAWS[law])
    ids = expected_ids(one, range(ROWS), SAMPLES)
    assert count_fetched_rows(one, range(ROWS), ids, room) == pytest.approx(fetched_by_lru(one, room), rel=ERROR)


@given(st.sampled_from(sorted(LAWS)), st.floats(0, 1e6), st.floats(1, 2 * ROWS), st.floats(1, 3))
def test_more_room_fetches_fewer_rows_and_none_less_than_once(law: str, ids: float, room: float, more: float) -> None:
    one, rows = table(*LAWS[law]), range(ROWS // 2)
    found = count_fetched_rows(one, rows, [ids], room)
    assert distinct_rows(one, rows, [ids]) * (1 - 1e-3) <= found <= ids
    assert count_fetched_rows(one, rows, [ids], room * more) <= found * (1 + 1e-3)


@pytest.mark.parametrize("room", [500, 4_000])
@pytest.mark.parametrize("law", LAWS)
def test_features_of_one_law_are_one_with_the_ids_of_both(law: str, room: int) -> None:
    ids, length = LAWS[law]
    features = tuple(Feature(name=f"f{at}", ids=ids, ids_per_sample=length) for at in range(2))
    both = table(Ids(), 2 * length, features=features)
    given_ids = expected_ids(both, range(ROWS), SAMPLES)
    one = count_fetched_rows(table(ids, length), range(ROWS), [sum(given_ids)], room)
    assert count_fetched_rows(both, range(ROWS), given_ids, room) == pytest.approx(one)

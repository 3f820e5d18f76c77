"""Ids go where the specification says, and their rows and gradients come back, in both worlds."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given

from real.check.cases.bags import as_unsigned, block_of, unbucketize
from real.check.cases.bucketize import Bucketize
from real.check.cases.plans import PlanCase
from real.check.cases.twrw import Twrw
from real.check.strategies import bucketizes, plans, plays, twrws
from scenarios.sharding_kind import ShardingType
from tests.properties.examples import SIZES, played, prop

# The exchange says so where it replaces weights, as it should.
pytestmark = pytest.mark.filterwarnings("ignore:need_pos")

BUCKETIZED, EXCHANGED, POOLED, PLANNED = prop(), prop(), prop(), prop()


@played
@given(plays(bucketizes, [(1, 1), (1, 2)]))
def test_bucketize_puts_each_id_where_a_loop_over_ids_puts_it(cases: tuple[Bucketize, ...]) -> None:
    BUCKETIZED.check(cases)


@played
@given(plays(twrws, SIZES))
def test_ranks_receive_the_ids_of_their_rows_in_staggered_order(cases: tuple[Twrw, ...]) -> None:
    EXCHANGED.check(cases)


def looked_up(case: Twrw) -> Counter[tuple[int, int]]:
    """The ids of each feature that ranks are to look up, as they were before they were cut."""
    found: Counter[tuple[int, int]] = Counter()
    for rank, (lengths, values, *_) in enumerate(case.oracle()):
        host, bucket = divmod(rank, case.gpus)
        first = sum(case.features[:host])
        ends = lengths.cumsum(0).tolist()
        at = start = 0
        for key in range(first, first + case.features[host]):
            at += sum(len(case.bags(source)[key]) for source in range(case.hosts * case.gpus))
            for item in values[start : ends[at - 1] if at else 0].tolist():
                local, block = as_unsigned(item, case.dtypes[0]), block_of(case.rows[key], case.gpus)
                found[key, unbucketize(local, bucket, block, case.gpus)] += 1
            start = ends[at - 1] if at else 0
    return found


@played
@given(plays(twrws, SIZES))
def test_the_oracle_loses_and_invents_no_id(cases: tuple[Twrw, ...]) -> None:
    for case in cases:
        bags = [case.bags(rank) for rank in range(case.hosts * case.gpus)]
        given_ids = Counter(
            (key, as_unsigned(item, case.dtypes[0]))
            for of_rank in bags
            for key, of_key in enumerate(of_rank)
            for bag in of_key
            for item in bag
        )
        assert looked_up(case) == given_ids


@played
@given(plays(lambda world: plans(world, ("table_row_wise",)), SIZES))
def test_the_whole_twrw_exchange_equals_a_dense_model(cases: tuple[PlanCase, ...]) -> None:
    POOLED.check(cases)


@played
@given(plays(lambda world: plans(world, get_args(ShardingType)), SIZES))
def test_tables_of_all_sharding_types_equal_a_dense_model(cases: tuple[PlanCase, ...]) -> None:
    PLANNED.check(cases)

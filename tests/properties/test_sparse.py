"""Ids go where the specification says, and their rows and gradients come back, in both worlds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.bags import block_of, unbucketized, unsigned
from tests.properties.bucketize import Bucketize
from tests.properties.examples import Property, World, played, plays, several
from tests.properties.plans import KINDS, Plan, Table
from tests.properties.twrw import Twrw

# The exchange says so where it replaces weights, as it should.
pytestmark = pytest.mark.filterwarnings("ignore:need_pos")

DTYPES = st.tuples(st.sampled_from(["int64", "int32"]), st.sampled_from(["int32", "int64"]))
SEEDS = st.integers(0, 99)


@st.composite
def bucketizes(draw: st.DrawFn, world: World) -> Bucketize:
    my_size = draw(st.sampled_from([1, 2, 3, 7, 300]))
    blocks = draw(several(st.integers(0, 9), 1, 4))
    uniform = draw(st.integers(0, 4))
    batches = draw(st.one_of(st.just((uniform,) * len(blocks)), st.tuples(*[st.integers(0, 4)] * len(blocks))))
    by_feature = st.tuples(*[st.booleans()] * len(blocks))
    totals = st.tuples(*[st.integers(1, 3).map(lambda times: times * my_size)] * len(blocks))
    bounds = st.tuples(*[_bounds(my_size)] * len(blocks))
    return Bucketize(
        gpus=world.gpus,
        blocks=blocks,
        batches=batches,
        my_size=my_size,
        longest=draw(st.integers(0, 6)),
        dtypes=draw(DTYPES),
        weighted=draw(st.booleans()),
        positions=draw(st.booleans()),
        sequence=draw(st.booleans()),
        bounds=draw(st.none() | bounds) if my_size < 10 else None,
        keep=draw(st.booleans() | by_feature),
        totals=draw(st.none() | totals),
        seed=draw(SEEDS),
    )


def _bounds(my_size: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(0, 20), min_size=my_size, max_size=my_size).map(lambda rows: (0, *sorted(rows)))


@st.composite
def twrws(draw: st.DrawFn, world: World) -> Twrw:
    features = tuple(draw(st.integers(0, 2)) for _ in range(world.hosts))
    count = sum(features)
    is_per_key = count > 0 and draw(st.booleans())
    return Twrw(
        hosts=world.hosts,
        gpus=world.gpus,
        features=features,
        rows=tuple(draw(st.integers(1, 12)) for _ in range(count)),
        batches=tuple(
            tuple(draw(st.integers(0, 3)) for _ in range(count if is_per_key else 1)) for _ in range(world.size)
        ),
        is_per_key=is_per_key,
        longest=draw(st.integers(0, 3)),
        dtypes=draw(DTYPES),
        weighted=draw(st.booleans()),
        has_feature_processor=draw(st.booleans()),
        need_pos=draw(st.booleans()),
        seed=draw(SEEDS),
    )


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[str, ...]) -> Table:
    kind = draw(st.sampled_from(kinds))
    cuts = draw(st.integers(1, 3)) if kind in ("column_wise", "table_column_wise", "grid_shard") else 1
    return Table(
        kind=kind,
        rows=draw(st.integers(1, 12)),
        widths=(draw(st.integers(1, 3)),) * cuts,
        owners=tuple(draw(st.integers(0, 5)) for _ in range(cuts)),
        processor=draw(st.booleans()),
    )


@st.composite
def plans(draw: st.DrawFn, world: World, kinds: tuple[str, ...]) -> Plan:
    return Plan(
        hosts=world.hosts,
        gpus=world.gpus,
        tables=draw(several(tables(kinds), 1, 3)),
        batches=tuple(draw(st.integers(0, 3)) for _ in range(world.size)),
        longest=draw(st.integers(0, 3)),
        dtype=draw(st.sampled_from(["int64", "int32"])),
        weighted=draw(st.booleans()),
        need_pos=draw(st.booleans()),
        seed=draw(SEEDS),
    )


BUCKETIZED, EXCHANGED, POOLED, PLANNED = Property(), Property(), Property(), Property()


@played
@given(plays(bucketizes, [(1, 1), (1, 2)]))
def test_bucketize_puts_each_id_where_a_loop_over_ids_puts_it(cases: tuple[Bucketize, ...]) -> None:
    BUCKETIZED.check(cases)


@played
@given(plays(twrws))
def test_each_rank_receives_the_ids_of_its_rows_in_staggered_order(cases: tuple[Twrw, ...]) -> None:
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
                local, block = unsigned(item, case.dtypes[0]), block_of(case.rows[key], case.gpus)
                found[key, unbucketized(local, bucket, block, case.gpus)] += 1
            start = ends[at - 1] if at else 0
    return found


@played
@given(plays(twrws))
def test_what_the_oracle_says_loses_and_invents_no_id(cases: tuple[Twrw, ...]) -> None:
    for case in cases:
        bags = [case.bags(rank) for rank in range(case.hosts * case.gpus)]
        given_ids = Counter(
            (key, unsigned(item, case.dtypes[0]))
            for of_rank in bags
            for key, of_key in enumerate(of_rank)
            for bag in of_key
            for item in bag
        )
        assert looked_up(case) == given_ids


@played
@given(plays(lambda world: plans(world, ("table_row_wise",))))
def test_the_whole_twrw_exchange_equals_a_dense_model(cases: tuple[Plan, ...]) -> None:
    POOLED.check(cases)


@played
@given(plays(lambda world: plans(world, KINDS)))
def test_tables_of_all_sharding_types_equal_a_dense_model(cases: tuple[Plan, ...]) -> None:
    PLANNED.check(cases)

"""Where rows of shuffled tables lie: bijections that differ from table to table and spread what is frequent."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.scenario import Feature, Ids, Table
from scenarios.workloads.dlrm.batches import draw_bags
from scenarios.workloads.dlrm.ids.distribution import block_shares
from scenarios.workloads.dlrm.ids.shuffle import Shuffle
from tests.scenarios.workloads.dlrm.ids.test_distribution import table, training

ZIPF = Ids(kind="zipf", exponent=1.05)
TABLES, HOSTS, GPUS = 300, 8, 8
# The most of the bytes looked up that a GPU may have, over the mean of its host.
MOST = 1.35


@given(st.text(max_size=20), st.integers(1, 3000))
def test_a_shuffle_is_a_bijection(name: str, rows: int) -> None:
    shuffle = Shuffle.of(table(rows, ZIPF, name=name))
    assert sorted(shuffle(np.arange(rows))) == list(range(rows))
    assert 0 <= shuffle.offset < rows
    assert 1 <= shuffle.step <= max(1, rows - 1)


@given(st.text(max_size=20), st.integers(1000, 1 << 41))
def test_a_step_is_a_good_part_of_the_rows(name: str, rows: int) -> None:
    """The most frequent rows are far from each other."""
    shuffle = Shuffle.of(table(rows, ZIPF, name=name))
    where = np.sort(shuffle(np.arange(4)))
    assert np.diff(np.append(where, where[0] + rows)).min() > rows / 25
    assert math.gcd(shuffle.step, rows) == 1


def test_a_shuffle_follows_from_the_name_in_every_process() -> None:
    """Another hash would move the rows of every scenario: figures that are kept would change."""
    assert Shuffle.of(table(1000, ZIPF, name="cat_0")) == Shuffle(rows=1000, step=413, offset=872)
    assert Shuffle.of(table(1000, ZIPF, name="café")) != Shuffle.of(table(1000, ZIPF, name="cafe"))


def test_features_of_a_table_share_its_frequent_rows() -> None:
    features = tuple(Feature(name=name, ids_per_sample=1.0, ids=ZIPF) for name in ("seen", "clicked"))
    one = dataclasses.replace(table(1000, Ids(), 2.0), features=features)
    assert {Shuffle.of(each) for each in one.by_feature} == {Shuffle.of(one)}
    drawn = [draw_bags(training((one,), 1, 1, 5000), 0, 0, 0, feature=at).ids for at in range(2)]
    assert len({int(np.bincount(ids).argmax()) for ids in drawn}) == 1


def test_further_ids_of_frequent_bags_differ_from_table_to_table() -> None:
    ids = Ids(kind="zipf", exponent=1.05, order="by_frequency", bags="by_first")
    tables = tuple(table(1 << 20, ids, 5, name=name) for name in ("a", "b"))
    bags = [draw_bags(training(tables, 1, 1, 500), number, 0, 0).ids.reshape(-1, 5) for number in range(2)]
    first = [of_table[of_table[:, 0] == 0][0] for of_table in bags]
    assert not set(first[0][1:]) & set(first[1][1:])


def _by_number(pattern: str) -> Callable[[random.Random, int], str]:
    return lambda _, number: pattern.format(number)


NAMED: dict[str, Callable[[random.Random, int], str]] = {
    **{pattern: _by_number(pattern) for pattern in ("t{}", "cat_{}", "table_{:03}", "{}", "user.history.{}.ids")},
    "random": lambda draw, _: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz_", k=12)),
}


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("over", [GPUS, HOSTS * GPUS], ids=["a host's GPUs", "all GPUs"])
def test_frequent_rows_of_300_tables_fall_evenly_over_gpus(named: str, over: int, alike: bool) -> None:
    """Bytes looked up, from the shares of ids: with the same shuffle in every table up to 1.7 times a host's mean."""
    draw = random.Random(1)
    loads = np.zeros((HOSTS, GPUS))
    hottest = set()
    for number in range(TABLES):
        rows = 10**7 if alike else int(10 ** draw.uniform(3, 8))
        per_sample = 1 if alike else draw.choice([1, 1, 2, 3, 5, 10, 20])
        one = table(rows, ZIPF, per_sample, name=NAMED[named](draw, number))
        shares = one.ids_per_sample * block_shares(one, over)
        hottest.add(int(shares.argmax()) % GPUS)
        if over == GPUS:
            loads[number % HOSTS] += shares
        else:
            loads += shares.reshape(HOSTS, GPUS)
    assert (loads.max(1) / loads.mean(1)).max() < MOST
    assert hottest == set(range(GPUS))


def test_small_tables_have_a_row_for_every_rank() -> None:
    for rows in (1, 2, 3, 4, 6):
        one: Table = table(rows, ZIPF, name="small")
        assert block_shares(one, rows).max() == pytest.approx(1 / sum(k**-1.05 for k in range(1, rows + 1)))

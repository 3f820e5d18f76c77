"""Rows that ids name together: against what is drawn, of one feature and of several on a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from scenarios.config.scenario import Feature, Ids, Table
from scenarios.workloads.dlrm.batches import draw_bags
from scenarios.workloads.dlrm.ids.distinct import DistinctDraws, distinct_rows, expected_ids
from tests.scenarios.workloads.dlrm.ids.test_distribution import table, training

ROWS = 2000
ZIPF, STEEP = Ids(kind="zipf", exponent=0.8), Ids(kind="zipf", exponent=1.3)
BY_FREQUENCY = Ids(kind="zipf", exponent=1.05, order="by_frequency")
BY_FIRST = Ids(kind="zipf", exponent=0.8, bags="by_first")


@pytest.mark.parametrize("order", ["shuffled", "by_frequency"])
@pytest.mark.parametrize("bags", ["independent", "by_first"])
@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.05, 1.6])
@pytest.mark.parametrize("batch", [30, 1000])
def test_distinct_rows_are_those_of_drawn_batches(order: str, bags: str, exponent: float, batch: int) -> None:
    """Of the whole table, and of a block; where few bags have most ids, their other ids are not even over blocks."""
    ids = Ids(kind="zipf", exponent=exponent, order=order, bags=bags)  # type: ignore[arg-type]
    one, steps = table(2000, ids, 4), 60
    made = training((one,), 1, 1, batch)
    drawn = [draw_bags(made, 0, 0, step).ids for step in range(steps)]
    blocks = [range(2000)] + [range(500, 1000)] * (bags == "independent" or exponent < 1.5)
    for rows in blocks:
        inside = [each[(each >= rows.start) & (each < rows.stop)] for each in drawn]
        found = np.mean([len(np.unique(each)) for each in inside])
        expected = np.mean([distinct_rows(one, rows, [len(each)]) for each in inside])
        assert expected == pytest.approx(found, rel=0.15 if len(rows) < 2000 else 0.06)


@pytest.mark.parametrize("ids", [Ids(), ZIPF, STEEP, BY_FREQUENCY], ids=["uniform", "zipf", "steep", "by_frequency"])
def test_distinct_ids_have_the_mean_of_drawn_ones_by_block(ids: Ids) -> None:
    one, steps, blocks, batch = table(2000, ids, 4), 400, 4, 60
    made = training((one,), 1, 1, batch)
    drawn = [np.unique(draw_bags(made, 0, 0, step).ids) // 500 for step in range(steps)]
    counts = np.array([np.bincount(each, minlength=blocks) for each in drawn])
    draws = DistinctDraws(one, batch)
    assert draws.mean(blocks) == pytest.approx(counts.mean(0), rel=0.04)
    assert draws.mean() == pytest.approx(draws.mean(blocks).sum(), rel=0.04)


def test_no_ids_name_no_rows() -> None:
    assert distinct_rows(table(10, Ids()), range(10), [0.0]) == 0
    assert distinct_rows(table(10, Ids()), range(5, 5), [3.0]) == 0
    assert distinct_rows(table(1, Ids()), range(1), [100.0]) == pytest.approx(1)


def share(*features: tuple[Ids, float]) -> Table:
    """One table with these laws, and ids a sample."""
    named = tuple(
        Feature(name=f"f{number}", ids=ids, ids_per_sample=count) for number, (ids, count) in enumerate(features)
    )
    total = sum(count for _, count in features)
    return dataclasses.replace(table(ROWS, Ids(), total), features=named)


@pytest.mark.parametrize(
    "features",
    [
        ((Ids(), 4), (Ids(), 1)),
        ((ZIPF, 4), (STEEP, 2), (Ids(), 1)),
        ((ZIPF, 3), (BY_FREQUENCY, 3)),
        ((BY_FIRST, 5), (BY_FIRST, 2), (ZIPF, 1)),
    ],
    ids=["uniform", "zipf", "orders", "by_first"],
)
@pytest.mark.parametrize("batch", [30, 400])
def test_features_of_a_table_name_rows_together(features: tuple[tuple[Ids, float], ...], batch: int) -> None:
    """Fewer than each by itself would: within 3 %, or 6 of bags whose ids are not independent."""
    one, steps = share(*features), 40
    made = training((one,), 1, 1, batch)
    found = np.mean(
        [
            len(np.unique(np.concatenate([draw_bags(made, 0, 0, step, feature=at).ids for at in range(len(features))])))
            for step in range(steps)
        ]
    )
    ids = expected_ids(one, range(ROWS), batch)
    assert ids == pytest.approx([batch * count for _, count in features])
    within = 0.06 if BY_FIRST in dict(features) else 0.03
    assert distinct_rows(one, range(ROWS), ids) == pytest.approx(found, rel=within)
    apart = sum(distinct_rows(each, range(ROWS), [count]) for each, count in zip(one.by_feature, ids, strict=True))
    if batch > 100:
        assert apart > (1 + 2 * within) * found


def test_files_that_name_the_same_rows_name_them_once(tmp_path: Path) -> None:
    """Rows 0 to 99 and 50 to 149, each named often enough to be named for sure; and blocks add up."""
    laws = []
    for first in (0, 50):
        file = tmp_path / f"{first}.csv"
        file.write_text("".join(f"{row}\n" for row in range(first, first + 100)))
        laws.append((Ids(kind="file", path=file), 1.0))
    one = share(*laws)
    assert distinct_rows(one, range(ROWS), [4000.0, 4000.0]) == pytest.approx(150)
    blocks = (range(60), range(60, ROWS))
    parts = [distinct_rows(one, rows, expected_ids(one, rows, 100)) for rows in blocks]
    assert sum(parts) == pytest.approx(distinct_rows(one, range(ROWS), [100.0, 100.0]))
    # Each row that both name is named by two ids on average, each other one by one: 1 - exp(-rate).
    assert sum(parts) == pytest.approx(50 * (1 - np.exp(-2)) + 100 * (1 - np.exp(-1)))


def test_two_features_of_one_law_are_one_with_the_ids_of_both() -> None:
    for law in (Ids(), ZIPF, BY_FREQUENCY):
        one, both = table(ROWS, law, 5), share((law, 2), (law, 3))
        for rows in (range(ROWS), range(500, 900)):
            together = distinct_rows(both, rows, expected_ids(both, rows, 100))
            assert together == pytest.approx(distinct_rows(one, rows, expected_ids(one, rows, 100)))

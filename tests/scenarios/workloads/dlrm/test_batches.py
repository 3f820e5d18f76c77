"""Drawn ids at the ends of what a scenario may ask for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.scenario import Ids, Table
from scenarios.workloads.dlrm.batches import draw_ids, draw_zipf, initial_rows
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


def mix(number: int) -> int:
    """Return the 64 bits that SplitMix64 makes of a state, in whole numbers of any size."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


@given(st.integers(0, 99), st.integers(0, 2**64), st.integers(0, 2**40), st.integers(0, 2000))
def test_first_values_follow_from_table_row_and_column(table: int, seed: int, row: int, column: int) -> None:
    rows, columns = range(row, row + 2), range(column, column + 3)
    found = initial_rows(table, seed, rows, columns, device=torch.device("cpu"))
    base = mix((seed * 0x9E3779B97F4A7C15 + table) % 2**64)
    bits = [[mix(mix(base + one) + other) >> 40 for other in columns] for one in rows]
    expected = (np.array(bits, dtype=np.float32) / np.float32(2**24) - np.float32(0.5)) * np.float32(0.1)
    assert found.tolist() == expected.tolist()


def test_rows_that_are_drawn_some_at_a_time_are_as_those_drawn_at_once() -> None:
    rows, cpu = range(5000), torch.device("cpu")
    whole = initial_rows(3, 7, rows, range(16), device=cpu)
    assert torch.equal(whole[4990:], initial_rows(3, 7, range(4990, 5000), range(16), device=cpu))
    assert torch.equal(whole[:, 5:7], initial_rows(3, 7, rows, range(5, 7), device=cpu))

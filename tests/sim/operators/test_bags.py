from __future__ import annotations

import csv
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward, mix_bags, uniform
from sim.operators.laws import seconds
from sim.operators.measuring import BAGS_BACKWARD_KERNELS, BAGS_FORWARD_KERNELS
from tests.sim.operators.rows import GAP_US, H200, MEASURING_US, errors, mean_error, on_every_gpu
from twinstep.published.operators.embeddings import describe

# One H200, fbgemm_gpu 1.6.0, 2026-11-26: forward and backward between events, ms; caches flushed before each.
ROWS = Path(__file__).parents[2] / "data" / "published" / "kernels" / "h200_tbe.csv"
FORWARD_BESIDE_US = MEASURING_US + (BAGS_FORWARD_KERNELS - 1) * GAP_US
BACKWARD_BESIDE_US = MEASURING_US + (BAGS_BACKWARD_KERNELS - 1) * GAP_US
# Kernels of forward and backward alone, from profiles: tables, samples, ids a bag, us.
KERNELS = [((8, 4096, 10), 68.9, 293.2), ((26, 8192, 1), 132.0, 258.4), ((8, 4096, 50), 222.6, 1068.9)]


@cache
def lines() -> tuple[dict[str, str], ...]:
    return tuple(csv.DictReader(ROWS.read_text().splitlines()))


def calls(column: str) -> list[tuple[Any, float]]:
    """Calls as the rows say them, and what they took, us."""
    is_backward = column == "bwd_ms"
    return [(describe(row, is_backward=is_backward).operations[0], 1e3 * float(row[column])) for row in lines()]


FORWARD, BACKWARD = calls("fwd_ms"), calls("bwd_ms")


def bags(tables: int = 8, dim: int = 128, samples: int = 4096, length: int = 10) -> Bags:
    return uniform(tables=tables, rows=1_000_000, dim=dim, bags=samples, length=length)


def test_lookups_of_an_h200_are_within_8_percent() -> None:
    assert mean_error(seconds, FORWARD, H200, FORWARD_BESIDE_US) < 0.08


def test_updates_of_an_h200_are_within_6_percent() -> None:
    assert mean_error(seconds, BACKWARD, H200, BACKWARD_BESIDE_US) < 0.06


def test_kernels_of_profiles_are_within_8_percent() -> None:
    forward = [(BagsForward(bags=bags(*_of(shape))), us) for shape, us, _ in KERNELS]
    backward = [(BagsBackward(bags=bags(*_of(shape))), us) for shape, _, us in KERNELS]
    assert mean_error(seconds, forward, H200) < 0.08
    assert mean_error(seconds, backward, H200) < 0.08


def _of(shape: tuple[int, int, int]) -> tuple[int, int, int, int]:
    tables, samples, length = shape
    return tables, 128, samples, length


def test_expected_distinct_rows_equal_the_counted_ones() -> None:
    for row in lines():
        if not row["zipf"]:
            drawn = describe(row | {"unique_first_table": ""}, is_backward=False).operations[0]
            assert isinstance(drawn, BagsForward)
            assert math.isclose(drawn.bags.unique, drawn.bags.tables * int(row["unique_first_table"]), rel_tol=0.01)


@on_every_gpu
def test_more_of_anything_never_takes_less(on: Gpu) -> None:
    for times in (
        [_both(bags(length=length), on) for length in (1, 2, 5, 10, 31, 64, 200)],
        [_both(bags(samples=samples), on) for samples in (64, 512, 4096, 32768)],
        [_both(bags(dim=dim), on) for dim in (32, 64, 128, 256, 512, 1024)],
        [_both(bags(tables=tables), on) for tables in (1, 8, 26, 200)],
    ):
        assert [each[0] for each in times] == sorted(each[0] for each in times)
        assert [each[1] for each in times] == sorted(each[1] for each in times)


def _both(call: Bags, on: Gpu) -> tuple[float, float]:
    return seconds(BagsForward(bags=call), on), seconds(BagsBackward(bags=call), on)


@on_every_gpu
def test_fewer_rows_and_less_state_are_never_slower(on: Gpu) -> None:
    call = bags(length=20)
    few = replace(call, unique=call.unique // 10)
    assert _both(few, on) < _both(call, on)
    states = [seconds(BagsBackward(bags=call, optimizer=name), on) for name in ("sgd", "adagrad", "adam")]
    assert states == sorted(states)
    weighted = seconds(BagsForward(bags=replace(call, weighted=True)), on)
    assert weighted >= seconds(BagsForward(bags=call), on)


def test_bags_but_one_are_within_25_percent() -> None:
    """A row of 2,048 ids is 42 us in the median, 21 in the best of its look-ups."""
    forward = sorted(abs(each) for each in errors(seconds, FORWARD, H200, FORWARD_BESIDE_US))
    backward = sorted(abs(each) for each in errors(seconds, BACKWARD, H200, BACKWARD_BESIDE_US))
    assert forward[-2] < 0.22
    assert backward[-2] < 0.25


# MLPerf's tables, rows up to 10 million, and ids a bag; kernels of a step of 4,096 samples on the H200, us.
CRITEO = (
    *((10_000_000, 3), (39_060, 2), (17_295, 1), (7_424, 2), (20_265, 6), (3, 1), (7_122, 1), (1_543, 1), (63, 1)),
    *((10_000_000, 7), (3_067_956, 3), (405_282, 8), (10, 1), (2_209, 6), (11_938, 9), (155, 5), (4, 1), (976, 1)),
    *((14, 1), (10_000_000, 12), (10_000_000, 100), (10_000_000, 27), (590_152, 10), (12_973, 3), (108, 1), (36, 1)),
)
CRITEO_LOOK_UP_US, CRITEO_UPDATE_US = 133.2, 446.6


def test_tables_that_differ_are_within_10_percent() -> None:
    parts = [uniform(tables=1, rows=rows, dim=128, bags=4096, length=length) for rows, length in CRITEO]
    call = mix_bags(parts)
    assert call.ids == sum(part.ids for part in parts) == 4096 * 214
    look_up = seconds(BagsForward(bags=call, checks_bounds=False), H200) * 1e6
    assert abs(look_up / CRITEO_LOOK_UP_US - 1) < 0.1
    assert seconds(BagsBackward(bags=call), H200) * 1e6 > CRITEO_UPDATE_US
    assert mix_bags([bags(), bags()]) == bags(tables=16)

"""On a simulated GPU of another law, a table brings predictions of what it does not hold nearer, and none farther."""

from __future__ import annotations

from itertools import islice

from real.calibration.operators.draws import GPU_SCALE
from real.calibration.operators.judging import Judged, family_of, judge, reasons
from real.calibration.operators.part import MeasuredRepeats, UnmeasuredOperator
from real.calibration.operators.ranges import families, plan_operators
from scenarios.config.load import load_profile
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import linear
from tests.real.calibration.operators.simulated import LawTimer, another
from twinstep.calibration.operators import _predictor

GPU = load_profile("hgx_h200").host.gpu
# What is less is noise: of one percent in each repeat.
_SEEN = 0.04


def measure(count: int) -> list[MeasuredRepeats]:
    timer = LawTimer(another(GPU))
    every = plan_operators(families(GPU, has_fbgemm=True), GPU_SCALE)
    return [
        MeasuredRepeats(operation=each, times_us=timer.times_us(each), needed_bytes=8)
        for _, each in islice(every, count)
    ]


def test_every_family_that_the_law_misses_is_nearer_with_a_table_of_others_of_it() -> None:
    found = judge(measure(2000), _predictor(GPU, is_cold=True), is_cold=True)
    missed = [each for each in found if len(each.errors) > 1 and each.typical_before > _SEEN]  # type: ignore[operator]
    assert len(missed) > 50
    assert [(each.family, each.typical_before, each.typical) for each in missed if each.is_worse] == []
    nearer = [each for each in missed if each.typical < 0.95 * each.typical_before]  # type: ignore[operator]
    assert len(nearer) >= len(missed) - 3, sorted({each.family for each in missed} - {each.family for each in nearer})
    assert sum(each.measured for each in found) == 2000


def test_every_fifth_is_held_out_and_worse_families_are_reported() -> None:
    rows = [MeasuredRepeats(operation=contiguous("relu", size, "float32"), times_us=(10.0,)) for size in range(1, 23)]
    asked: list[int] = []

    def predict(table: object, operations: object) -> list[float]:
        asked.append(len(table))  # type: ignore[arg-type]
        return [(12e-6 if table else 11e-6)] * len(operations)  # type: ignore[arg-type]

    (found,) = judge(rows, predict, is_cold=False)
    assert asked == [0, 18]
    assert (found.family, found.measured, len(found.errors)) == ("elementwise float32", 22, 4)
    assert found.is_worse
    before, after = found.groups()
    assert (before.name, after.name) == ("elementwise float32, law alone", "elementwise float32, with the table")
    assert (before.typical_error, after.typical_error) == (0.1, 0.2)


def test_few_operators_are_not_judged() -> None:
    rows = [MeasuredRepeats(operation=contiguous("relu", 8, "float32"), times_us=(10.0,))]
    assert judge(rows, lambda table, operations: [], is_cold=False) == [
        Judged(family="elementwise float32", measured=1, before=(), errors=(), spreads=(0.0,), sizes=(0.0,))
    ]
    assert not judge(rows, lambda table, operations: [], is_cold=False)[0].groups()


def test_reasons_are_counted_by_family() -> None:
    large = [
        UnmeasuredOperator(operation=linear(8, 8, size, "float32", element_bytes=4), why=f"too large: {size} GB")
        for size in (1, 2)
    ]
    one = UnmeasuredOperator(operation=contiguous("relu", 8, "float32"), why="torch has none")
    assert reasons([*large, one]) == {
        "products float32": {"too large": 2},
        "elementwise float32": {"torch has none": 1},
    }
    assert family_of(linear(8, 8, 8, "tf32", element_bytes=4)) == "products tf32"

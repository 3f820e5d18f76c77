"""In which order points are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from twinstep.regret.rounds import MeasurablePoint, MeasuredPoint, order

POINTS = [MeasurablePoint(at, {}, f"d{at}", None) for at in range(8)]  # type: ignore[arg-type]  # nobody looks at scenarios


def never(medians_ns: Sequence[float]) -> bool:
    return False


def test_every_round_covers_all_points_in_a_new_order() -> None:
    measured: dict[str, MeasuredPoint] = defaultdict(MeasuredPoint)
    taken = []
    for number, point in order(POINTS, measured, rounds=3, is_known=never):
        taken.append((number, point.index))
        measured[point.digest].medians_ns.append(1.0)
    assert [number for number, _ in taken] == [1] * 8 + [2] * 8 + [3] * 8
    rounds = [[index for number, index in taken if number == one] for one in (1, 2, 3)]
    assert all(sorted(one) == list(range(8)) for one in rounds)
    assert len({tuple(one) for one in rounds}) == 3


def test_known_failed_and_measured_points_are_skipped() -> None:
    """Of four points: one is alike in two rounds, one differs, one fails, one has two rounds already."""
    measured: dict[str, MeasuredPoint] = defaultdict(MeasuredPoint, {"d3": MeasuredPoint([5.0, 9.0])})
    times = {"d0": [1.0, 1.0], "d1": [1.0, 2.0, 1.5]}
    taken = []
    for number, point in order(POINTS[:4], measured, rounds=3, is_known=lambda each: max(each) == min(each)):
        taken.append((number, point.index))
        if point.index == 2:
            measured["d2"].failed = True
        else:
            measured[point.digest].medians_ns.append(times.get(point.digest, [0, 0, 7.0])[number - 1])
    assert sorted(taken) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 1), (3, 3)]

"""Classes of ranks in words."""

from __future__ import annotations

import pytest

from scenarios.workloads.script.recording.hints import rank_classes


@pytest.mark.parametrize(
    ("recorded_by", "classes"),
    [
        ([0, 1, 2], ()),
        ([0, 0, 0], ((0, 3, "0-2"),)),
        ([0, 1, 1, 1, 4], ((0, 1, "0"), (1, 3, "1-3"), (4, 1, "4"))),
        ([0, 1, 1, 1] * 3, ((0, 3, "0-8 in steps of 4"), (1, 9, "1-3, 5-7, 9-11"))),
        ([0, 1, 2, 3, 4, 0], ((0, 2, "0, 5"), *((rank, 1, str(rank)) for rank in range(1, 5)))),
        (
            [0, 1, 1] * 12,
            (
                (0, 12, "0-33 in steps of 3"),
                (1, 24, f"{', '.join(f'{first}-{first + 1}' for first in range(1, 25, 3))}, 4 more ranges"),
            ),
        ),
    ],
)
def test_classes_are_ranges_of_ranks(recorded_by: list[int], classes: tuple[tuple[int, int, str], ...]) -> None:
    assert rank_classes(recorded_by) == classes

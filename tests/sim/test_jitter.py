from __future__ import annotations

import pytest

from sim.jitter import Varying

QUANTILES = (0.5, 0.75, 1.0, 3.0, 5.0)


def draw(draw: str | None) -> list[float]:
    varying = Varying(QUANTILES, draw)
    return [varying.next() for _ in range(20_000)]


def test_times_are_the_mean_unless_they_are_drawn() -> None:
    assert set(draw(None)) == {1.0}
    assert draw("1") == draw("1") != draw("2")


def test_drawn_times_have_the_quantiles() -> None:
    found = sorted(draw("1"))
    for share, wanted in ((0.0, 0.5), (0.25, 0.75), (0.5, 1.0), (0.75, 3.0), (1.0, 5.0)):
        assert found[min(len(found) - 1, int(share * len(found)))] == pytest.approx(wanted, rel=0.03), share

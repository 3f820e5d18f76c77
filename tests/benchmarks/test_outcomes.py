"""Which of two times a call took, and how far apart its ranks started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import outcomes

PROFILE = Path(__file__).parents[2] / "scenarios" / "profiles" / "emulated_200mbit.toml"


def test_a_row_counts_the_calls_that_take_longer_than_the_wire() -> None:
    """Three calls of 40, 60 and 60 ms, whose second rank starts 10, -300 and 200 us after the first."""
    rows = [[(0, 40e6), (10e3, 40e6)], [(300e3, 59e6), (0, 60e6)], [(0, 60e6), (200e3, 50e6)]]
    assert outcomes.row("this way", np.array(rows, dtype=np.float64), 0.04) == (
        "| this way | 3 | 67% | 60.0 ms | 200 (48 to 280) us |"
    )


def test_calls_of_draws_take_the_wires_time_or_half_as_much_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "DRAWS", 4)
    calls = outcomes.predict("200mbit", PROFILE)
    assert calls.shape == (4 * outcomes.STEPS, 2, 2)
    wire_ns = outcomes.SIZE_BYTES / 2 / outcomes.PAYLOAD_SHARE / 25e6 * 1e9
    taken = (calls[:, :, 1].max(axis=1) - calls[:, :, 0].min(axis=1)) / wire_ns
    longer = taken > outcomes.BETWEEN
    assert 0 < longer.mean() < 1
    assert np.median(taken[~longer]) == pytest.approx(1, rel=0.1)
    assert np.median(taken[longer]) == pytest.approx(1.5, rel=0.1)


def test_ranks_that_share_a_core_post_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "DRAWS", 2)
    calls = outcomes.predict("200mbit", PROFILE, cores=1)
    wire_ns = outcomes.SIZE_BYTES / 2 / outcomes.PAYLOAD_SHARE / 25e6 * 1e9
    assert np.all(calls[:, :, 1].max(axis=1) - calls[:, :, 0].min(axis=1) > outcomes.BETWEEN * wire_ns)

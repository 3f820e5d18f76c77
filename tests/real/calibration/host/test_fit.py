"""The fit finds the prices that made the times, and moves those that no snippet has with the others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from real.calibration.host.counted import Counted
from real.calibration.host.fit import PRICES, TimedSnippet, fit, judge, together
from scenarios.config.host_costs import Eager
from scenarios.seam.host_work import HostWork

_LIKE = Eager()


def count(collectives: int = 0, launches_ns: int = 0, **counts: int) -> Counted:
    return Counted(
        work=HostWork(**counts), collectives=collectives, launches_ns=launches_ns, moved_bytes=(64.0, 4096.0)
    )


def machine_times(eager: Eager, **noise: float) -> list[TimedSnippet]:
    """Snippets of one count alone, but for bags, and mixtures of them, on a host that has these prices."""
    alone = {name: {name: 100} for name in PRICES.values() if name != "bags"}
    draws = np.random.default_rng(0)
    mixed = {f"mixed {index}": {name: int(draws.integers(10, 200)) for name in alone} for index in range(6)}
    rows = {name: count(launches_ns=40_000, **counts) for name, counts in {**alone, **mixed}.items()}
    blank = [TimedSnippet(name=name, counted=row, taken_ns=(1,)) for name, row in rows.items()]
    return [
        dataclasses.replace(each, taken_ns=(round(each.predicted_ns(eager) * noise.get(each.name, 1.0)),) * 3)
        for each in blank
    ]


def prices(eager: Eager) -> list[int]:
    return [getattr(eager, f"{name}_ns") for name in PRICES]


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_fit_recovers_prices_and_unseen_ones_follow_the_mean(
    factor: float,
) -> None:
    there = dataclasses.replace(
        _LIKE, **{f"{name}_ns": round(factor * getattr(_LIKE, f"{name}_ns")) for name in PRICES}
    )
    found = fit(machine_times(there), _LIKE)
    assert prices(found.eager) == pytest.approx(prices(there), rel=0.02)
    assert found.unseen == ("bags",)
    assert found.factor == pytest.approx(factor, rel=0.02)


def test_fit_separates_different_prices() -> None:
    there = dataclasses.replace(_LIKE, dispatch_ns=2_000, product_ns=9_000, pass_ns=40_000, call_ns=500)
    times = machine_times(there)
    found = fit(times, _LIKE)
    for name in ("dispatch", "operator", "product", "pass", "node", "gradient", "call", "collective"):
        assert getattr(found.eager, f"{name}_ns") == pytest.approx(getattr(there, f"{name}_ns"), rel=0.1), name
    assert max(abs(each.error(found.eager)) for each in times) < 0.05


def test_prices_stay_positive_where_launches_alone_take_longer_than_the_host() -> None:
    times = [TimedSnippet(name="a", counted=count(dispatches=10, launches_ns=1_000_000), taken_ns=(1_000,))]
    found = fit(times, _LIKE).eager
    assert min(prices(found)) > 0


def test_fit_is_robust_to_a_disturbed_snippet() -> None:
    times = machine_times(_LIKE, **{"mixed 2": 6.0})
    found = fit(times, _LIKE).eager
    assert prices(found) == pytest.approx(prices(_LIKE), rel=0.25)
    group = judge(times, found)
    assert group.worst_error == pytest.approx(1 / 6 - 1, abs=0.05)
    assert group.typical_error < 0.1
    assert (group.least_bytes, group.most_bytes) == (64, 4096)


def test_snippets_that_did_not_run_are_left_out_and_some_are_held_out() -> None:
    counts = {name: count(dispatches=1) for name in ("a", "b", "c")}
    timed, held_out = together(counts, {"a": [5], "b": [7, 9, 8]}, ["b"])
    assert [each.name for each in timed] == ["a"]
    assert [(each.name, each.median_ns) for each in held_out] == [("b", 8)]

"""A crowd whose spinning is known: the fit finds its share again; without any, none."""

from __future__ import annotations

import dataclasses

import pytest

from real.calibration.crowd import Crowd, Means, fit, means, with_share
from scenarios.hardware import Cluster, Inside, Link, Nics
from sim.run import simulate
from tests.small import CORE, TCP, cluster, scenario

INSIDE = Inside(kind="memory", link=Link(bytes_per_s=2e9, latency_ns=20_000), bridge_bytes_per_s=4e9)
QUICK = dataclasses.replace(TCP, wake_ns=3000, wake_soon_ns=1000)


def crowd() -> Cluster:
    nics = Nics(per="host", count=1, link=Link(bytes_per_s=25e6, latency_ns=2000))
    return cluster(4, 1, nics=nics, inside=INSIDE, gpu=CORE, cores=2, tcp=QUICK, hosts_share_cores=True)


def play(on: Cluster, draw: int = 1) -> Means:
    return means(simulate(scenario(on, payload="sizes"), Crowd(), draw).spans)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and candidates enough for a simulation, which is not noisy."""
    monkeypatch.setattr("real.calibration.crowd.REPEATS", 30)
    monkeypatch.setattr("real.calibration.crowd._SHARES", (0.0, 0.04, 0.1))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_share_is_found_again(share: float) -> None:
    measured = play(with_share(crowd(), share), draw=7)
    found = fit(crowd(), measured, play).tcp
    assert found is not None
    assert found.spin_share == share
    assert (found.spin_ns > 0) == (found.spin_share > 0)


def test_whoever_spins_holds_all_calls_up() -> None:
    quick, held_up = (play(with_share(crowd(), share)) for share in (0.0, 0.1))
    assert set(quick) == {"barrier", "all_reduce", "all_gather", "broadcast"}
    assert max(quick.values()) < 3e-3
    assert sum(held_up.values()) > 1.5 * sum(quick.values())

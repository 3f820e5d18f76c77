"""A crowd whose spinning is known: the fit finds its share again; without any, none."""

from __future__ import annotations

import dataclasses

import pytest

from real.calibration.network.crowded_cores import Crowd, Typical, barrier_s, fit, typical, with_spins
from scenarios.config.hardware import Cluster, Inside, Link, Nics
from scenarios.seam.trace import Metric
from sim.run import simulate
from tests.small import CORE, TCP, cluster, scenario

INSIDE = Inside(kind="memory", link=Link(bytes_per_s=2e9, latency_ns=20_000), bridge_bytes_per_s=4e9)
QUICK = dataclasses.replace(TCP, wake_ns=3000, wake_soon_ns=1000)
REPEATS = 12


def crowd() -> Cluster:
    nics = Nics(per="host", count=1, link=Link(bytes_per_s=25e6, latency_ns=2000))
    return cluster(4, 1, nics=nics, inside=INSIDE, gpu=CORE, cores=2, tcp=QUICK, hosts_share_cores=True)


def play(on: Cluster, draw: int = 1) -> Typical:
    given = scenario(on, payload="sizes")
    return typical(simulate(given, Crowd(given, REPEATS), draw).spans, REPEATS)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates enough for a simulation, which is not noisy."""
    monkeypatch.setattr("real.calibration.network.crowded_cores._SPINS", (0.0, 0.1))


@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
def test_fit_recovers_the_share_of_spins(share: float) -> None:
    found = fit(crowd(), play(with_spins(crowd(), share), draw=7), play).tcp
    assert found is not None
    assert found.spin_share == share
    assert (found.spin_ns > 0) == (found.spin_share > 0)


def test_spinning_threads_delay_all_calls() -> None:
    quick, spinning = (play(with_spins(crowd(), share)) for share in (0.0, 0.1))
    assert set(quick) == {"barrier", "all_reduce", "all_gather", "broadcast", "work"}
    assert max(time_s for name, time_s in quick.items() if name != "work") < 3e-3
    assert spinning["work"] > 1.2 * quick["work"]
    assert sum(spinning.values()) > 1.5 * sum(quick.values())


def test_work_takes_the_cores_that_there_are() -> None:
    """7 ms of each of four ranks on two cores."""
    assert 14e-3 < play(crowd())["work"] < 20e-3


def test_barrier_time_is_the_lower_quartile() -> None:
    taken = [Metric(rank=0, step=-1, name="barrier_cpu_s", value=value) for value in (3e-4, 1e-4, 2e-4, 9e-4, 4e-4)]
    assert barrier_s([*taken, Metric(rank=0, step=-1, name="other", value=1e-5)]) == 2e-4

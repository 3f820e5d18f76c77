"""--emulate: where ranks are started, and what is said of hosts that are faster than this machine's cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from real.emulate import cli as hosting
from real.emulate.cli import hosts_for, warnings
from real.emulate.fabric import EmulatedFabric, fabric_of
from real.launch.launcher import Hosts
from scenarios.config.hardware import Link, Nics
from scenarios.config.scenario import Scenario
from tests.contract.worlds import scenario


def with_nics(bytes_per_s: float) -> Scenario:
    made = scenario(2, 1)
    nics = Nics(per="host", count=1, link=Link(bytes_per_s=bytes_per_s, latency_ns=0))
    host = dataclasses.replace(made.cluster.host, nics=nics)
    return dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, host=host))


def test_without_emulate_ranks_are_this_machines() -> None:
    with hosts_for(with_nics(1e12), None, lambda said: pytest.fail(str(said))) as hosts:
        assert type(hosts) is Hosts


@pytest.mark.parametrize(("bytes_per_s", "count"), [(1e6, 0), (1e12, 1)])
def test_rates_that_the_cores_cannot_carry_are_said(
    bytes_per_s: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[EmulatedFabric] = []

    def emulate(fabric: EmulatedFabric) -> AbstractContextManager[Any]:
        made.append(fabric)
        return nullcontext()

    monkeypatch.setattr(hosting, "emulate_hosts", emulate)
    monkeypatch.setattr(hosting, "sweep", list)
    said: list[str] = []

    def tell(sentences: Iterable[str]) -> None:
        said.extend(sentences)

    given = with_nics(bytes_per_s)
    with hosts_for(given, "", tell):
        pass
    assert made == [fabric_of(given)]
    assert said == warnings(made[0])
    assert len(said) == count

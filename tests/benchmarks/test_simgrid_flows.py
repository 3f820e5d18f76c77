"""What SimGrid is given; what it makes of it, its own --check shows where it is installed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks.baselines import simgrid_flows
from benchmarks.baselines.alpha_beta import AlphaBeta
from benchmarks.baselines.cases import calls
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from sim.engine.fabric import Fabric


def cluster(hosts: int, ranks_per_host: int) -> Cluster:
    profile = load_profile("cpu_local")
    return dataclasses.replace(profile, hosts=hosts, host=dataclasses.replace(profile.host, gpus=ranks_per_host))


def make(platform: Cluster, op: str, size_bytes: int) -> dict[str, Any]:
    return simgrid_flows.problem(platform, calls(op, size_bytes, platform.world_size), ())


def test_routes_are_the_paths_of_our_simulator() -> None:
    platform = cluster(2, 2)
    found = make(platform, "barrier", 0)
    fabric = Fabric(platform)
    assert [route[:2] for route in found["routes"]] == [[a, b] for a in range(4) for b in range(4) if a != b]
    for source, target, names, latency_s in found["routes"]:
        path = fabric.path(source, target)
        assert {name: found["links"][name] for name in names} == {link.name: link.per_s for link in path.links}
        assert latency_s == path.latency_ns / 1e9


def test_every_message_is_sent_received_and_waited_for() -> None:
    scripts = make(cluster(3, 1), "all_gather", 3000)["scripts"]
    sends = {
        (rank, one[1], one[2], one[3]) for rank, script in enumerate(scripts) for one in script if one[0] == "send"
    }
    recvs = {
        (one[1], rank, one[2], one[3]) for rank, script in enumerate(scripts) for one in script if one[0] == "recv"
    }
    assert sends == recvs
    assert sum(size for _, _, size, _ in sends) == 3 * 2000
    kinds = [one[0] for one in scripts[0]]
    assert (kinds.count("wait_send"), kinds.count("wait_recv")) == (kinds.count("send"), kinds.count("recv"))


def test_copies_and_sums_take_the_memory_s_time() -> None:
    platform = cluster(2, 1)
    gpu = platform.host.gpu
    rate = gpu.memory_bytes_per_s * gpu.efficiency["elementwise"]
    script = make(platform, "reduce_scatter", 8000)["scripts"][0]
    work_s = [one[1] for one in script if one[0] == "work"]
    # The input is copied, half of it is summed in two segments (two reads and a write), the output is copied.
    assert work_s == pytest.approx([2 * 8000 / rate, 3 * 2000 / rate, 3 * 2000 / rate, 2 * 4000 / rate])


def test_a_fitted_platform_has_the_measured_rate_and_its_part_of_alpha_on_each_path() -> None:
    model = AlphaBeta(alpha_s=3e-4, beta_s_per_byte=4e-8)
    found = make(simgrid_flows.fit(cluster(2, 2), model, 0.5), "barrier", 0)
    assert {latency_s for *_, latency_s in found["routes"]} == {1.5e-4}
    rates = [rate for name, rate in found["links"].items() if ".nic" in name]
    assert rates == pytest.approx([25e6] * 4)


def test_missing_simgrid_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(simgrid_flows, "find_spec", lambda name: None)
    monkeypatch.setattr(simgrid_flows, "ROOT", tmp_path)
    with pytest.raises(simgrid_flows.AbsentError, match="expected an interpreter with simgrid; `make benchmarks`"):
        simgrid_flows.predict(cluster(2, 1), calls("barrier", 0, 2))

"""A job's step with a slow part, and on fewer hosts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart
from scenarios.config.hardware import Network
from scenarios.config.load import load
from scenarios.config.scenario import Replication, Scenario
from scenarios.config.scenario.job import FailureKind
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from tests.small import recommender
from twinstep.jobs.slow_step import MOST_SIMULATED, slow_factors, slowed_step, step_on, steps_on
from twinstep.plan_choice import build_planned

LARGE = 'name = "large"\nrows = 1_000_000\nids_per_sample = 40\n'
SMALL = 'name = "small"\nrows = 1_000\nids_per_sample = 1\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(recommender(LARGE, SMALL, batch_size=4096))
    return file


def planned(file: Path, values: dict[str, Any]) -> tuple[Scenario, Program]:
    return build_planned(load(file, values))


def predicted_s(file: Path, values: dict[str, Any]) -> float:
    """The step of a file with these values, which has no part that is slow besides."""
    return slowed_step(*planned(file, values), "gpu", 1.0)


@pytest.mark.parametrize("ranks", ["each", "alike"])
def test_a_slow_part_takes_as_long_as_the_file_with_this_fault(file: Path, ranks: str) -> None:
    values = {"run.ranks": ranks}
    scenario, program = planned(file, values)
    busiest = max(program.plan, key=lambda row: row.perf_ms).rank
    host, place = divmod(busiest, 2)
    whole_s = predicted_s(file, values)
    for part in ("gpu", "nic"):
        faults = [{"host": host, part: place, "speed": 0.05}]
        slow_s = slowed_step(scenario, program, part, 0.05)  # type: ignore[arg-type]
        assert slow_s == predicted_s(file, {**values, "cluster.faults": faults}) > whole_s


def test_a_plan_that_was_found_stays(file: Path) -> None:
    scenario, program = planned(file, {"run.ranks": "alike", "sharding.choose": "simulated"})
    assert scenario.workload.plan_file is not None
    assert not scenario.workload.plan_file.path.exists()
    assert slowed_step(scenario, program, "gpu", 0.05) > slowed_step(scenario, program, "gpu", 1.0)


def test_kinds_with_a_slow_part_have_factors(file: Path) -> None:
    scenario, program = planned(file, {})
    kinds = [
        FailureKind(name="throttled", slow_part="gpu", slow_speed=0.05),
        FailureKind(name="cable", slow_part="nic", slow_speed=1.0),
        FailureKind(name="software"),
        FailureKind(name="at once", slow_part="gpu", slow_for_ns=0),
    ]
    step_s = slowed_step(scenario, program, "gpu", 1.0)
    assert slow_factors(scenario, program, kinds, step_s) == {
        "throttled": slowed_step(scenario, program, "gpu", 0.05) / step_s,
        "cable": 1.0,
    }


def test_a_step_on_fewer_hosts_is_that_of_a_smaller_cluster_planned_anew(file: Path) -> None:
    four = load(file, {"cluster.hosts": 4, "model.tables[0].ranks": [7], "model.tables[1].ranks": [0]})
    assert step_on(four, 2) == predicted_s(file, {"model.tables[1].ranks": [0]})
    assert step_on(four, 1) != step_on(four, 2)


def test_faults_of_hosts_that_are_left_stay(file: Path) -> None:
    network = Network(kind="leaf_spine", hosts_per_leaf=2)
    four = load(file, {"cluster.hosts": 4})
    gone = Fault(GpuPart(3, 0), 0.01), Fault(LeafPart(1), 0.01), Fault(NicPart(2, 1), 0.01)
    cluster = dataclasses.replace(four.cluster, network=network)

    def on_two(*faults: Fault) -> float:
        return step_on(dataclasses.replace(four, cluster=dataclasses.replace(cluster, faults=faults)), 2)

    assert on_two(*gone) == on_two() < on_two(*gone, Fault(GpuPart(1, 0), 0.01))


def test_some_numbers_of_hosts_are_simulated_and_others_lie_between(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated: list[int] = []

    def step(_: Scenario, hosts: int) -> float:
        simulated.append(hosts)
        return float(hosts)

    monkeypatch.setattr("twinstep.jobs.slow_step.step_on", step)
    scenario = load(file, {"cluster.hosts": 64})
    assert steps_on(scenario, range(32, 65), 70.0) == pytest.approx(
        {hosts: hosts if hosts <= 53 else 53 + 17 * (hosts - 53) / 11 for hosts in range(32, 65)}
    )
    assert simulated == [32, 43, 53]
    assert len(simulated) == MOST_SIMULATED
    assert steps_on(scenario, [64], 70.0) == {64: 70.0}
    simulated.clear()
    # Groups of 32 ranks: multiples of 16 hosts.
    grouped = scenario.with_workload(replication=Replication(sharding_group_size=32, node_group_size=2))
    assert steps_on(grouped, [20, 40, 56], 64.0) == pytest.approx({20: 20, 40: 40, 56: 56})
    assert simulated == [16, 32, 48]
    with pytest.raises(ScenarioError, match="whole groups of ranks fill, not 20"):
        step_on(grouped, 20)

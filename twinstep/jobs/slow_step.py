"""A job's step under other conditions: with a slow part before a failure, and on fewer hosts after one."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import numpy as np

from reports.analysis.step_breakdown import mean_step_ns
from reports.run import Run
from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart, Part
from scenarios.config.hardware import Cluster
from scenarios.config.scenario import Recommender, Scenario
from scenarios.config.scenario.job import FailureKind
from scenarios.owned_folder import scratch_folder
from scenarios.planner.plan_file import PLAN_FILE
from scenarios.seam.errors import Note, ScenarioError
from scenarios.seam.program import Program
from scenarios.workloads.build import build_simulation
from sim.draws import steps_of_draw
from twinstep.plan_choice import build_planned
from twinstep.plan_choice.evaluated_plan import change_tables

SlowPart = Literal["gpu", "nic"]

# Numbers of hosts below the whole cluster that are simulated; steps on others are interpolated.
MOST_SIMULATED = 3


def slow_factors(
    scenario: Scenario, program: Program, kinds: Collection[FailureKind], step_s: float
) -> dict[str, float]:
    """Return, by name, how many times longer a step takes with the slow part of each kind that has one.

    Args:
        scenario: the scenario with its plan, from which `program` was built.
        program: its program.
        kinds: kinds of failures.
        step_s: seconds of its step without a slow part.

    Raises:
        ProgramError: as `sim.run.simulate` does.
    """
    slow = {kind.name: (kind.slow_part, kind.slow_speed) for kind in kinds if kind.slow_part and kind.slow_for_ns}
    found = {each: slowed_step(scenario, program, *each) for each in dict.fromkeys(slow.values())}
    return {name: max(found[each] / step_s, 1.0) for name, each in slow.items()}


def slowed_step(scenario: Scenario, program: Program, part: SlowPart, speed: float) -> float:
    """Return the seconds of a step in which one GPU or NIC runs at a share of its rates.

    The GPU is that of the rank with the most planned time for tables, or rank 0 without a plan; the NIC serves that
    GPU. Tables stay where they are.

    Args:
        scenario: the scenario with its plan, from which `program` was built.
        program: its program.
        part: which part is slow.
        speed: share of its rates that the part reaches, above 0.

    Raises:
        ProgramError: as `sim.run.simulate` does.
    """
    cluster = scenario.cluster
    fault = Fault(_part_of(cluster, _busiest_rank(program), part), speed)
    slowed = dataclasses.replace(scenario, cluster=dataclasses.replace(cluster, faults=(*cluster.faults, fault)))
    if program.host_classes is None:
        return _step_s(slowed, program)
    # The slow host needs a host class of its own. A file of a plan that was found lies in a folder that is gone.
    kept = program.kept().get(PLAN_FILE)
    with scratch_folder() as folder, _without_notes():
        if kept is not None:
            (folder / PLAN_FILE).write_bytes(kept)
            slowed = _with_plan_file(slowed, folder / PLAN_FILE)
        return _step_s(slowed, build_simulation(slowed))


def step_on(scenario: Scenario, hosts: int) -> float:
    """Return the seconds of a step on the first `hosts` hosts; the batch per rank stays, tables are planned anew.

    Raises:
        ScenarioError: the scenario cannot run on so many hosts; its tables do not fit, for example.
        ProgramError: as `sim.run.simulate` does.
    """
    if not _can_run_on(scenario, hosts):
        raise ScenarioError(f"{scenario.path}: expected a number of hosts that whole groups of ranks fill, not {hosts}")
    cluster = scenario.cluster
    per_leaf = cluster.network.hosts_per_leaf

    def is_left(fault: Fault) -> bool:
        if isinstance(fault.part, LeafPart):
            return per_leaf is not None and fault.part.leaf * per_leaf < hosts
        return fault.part.host < hosts

    left = dataclasses.replace(cluster, hosts=hosts, faults=tuple(filter(is_left, cluster.faults)))
    with _without_notes():
        return _step_s(*build_planned(_to_be_planned(dataclasses.replace(scenario, cluster=left))))


def steps_on(scenario: Scenario, counts: Collection[int], whole_s: float) -> dict[int, float]:
    """Return the seconds of a step on each of these numbers of hosts; `whole_s` is the step on all hosts.

    At most `MOST_SIMULATED` numbers below all hosts are simulated; between them a step is linear in the number of
    hosts. Below the least number on which the scenario can run, that number's step is used.

    Raises:
        ScenarioError, ProgramError: as `step_on` does.
    """
    whole, least = scenario.cluster.hosts, min(counts, default=scenario.cluster.hosts)
    possible = [hosts for hosts in range(1, whole) if _can_run_on(scenario, hosts)]
    # One number at or below the least, so that all others lie between two.
    possible = possible[max((place for place, hosts in enumerate(possible) if hosts <= least), default=0) :]
    known = {whole: whole_s}
    if least < whole and possible:
        wanted = np.linspace(possible[0], whole, MOST_SIMULATED + 1)[:-1]
        nearest = np.abs(np.subtract.outer(wanted, possible)).argmin(axis=1)
        known |= {possible[place]: step_on(scenario, possible[place]) for place in np.unique(nearest).tolist()}
    simulated = sorted(known)
    return {hosts: float(np.interp(hosts, simulated, [known[one] for one in simulated])) for hosts in counts}


def _can_run_on(scenario: Scenario, hosts: int) -> bool:
    """Return whether whole NVLink domains and sharding groups have so many hosts."""
    cluster = scenario.cluster
    domain = cluster.host.inside.hosts_per_domain
    fills_domains = hosts <= domain or hosts % domain == 0
    return fills_domains and (
        scenario.workload.replicas is None or hosts * cluster.host.gpus % scenario.sharding_ranks == 0
    )


def _busiest_rank(program: Program) -> int:
    planned: dict[int, float] = {}
    for row in program.plan:
        planned[row.rank] = planned.get(row.rank, 0.0) + row.perf_ms
    known = {rank: takes_ms for rank, takes_ms in planned.items() if math.isfinite(takes_ms)}
    return max(known, key=lambda rank: (known[rank], -rank), default=0)


def _part_of(cluster: Cluster, rank: int, part: SlowPart) -> Part:
    host, gpu = divmod(rank, cluster.host.gpus)
    nics = cluster.host.nics
    return GpuPart(host, gpu) if part == "gpu" else NicPart(host, gpu if nics.per == "gpu" else gpu % nics.count)


def _to_be_planned(scenario: Scenario) -> Scenario:
    """Return the scenario without places of tables that the cluster may lack."""
    if not isinstance(scenario.workload, Recommender):
        return scenario
    world, planner = scenario.sharding_ranks, scenario.workload.planner
    unplaced = scenario.with_workload(planner=dataclasses.replace(planner, plan=None))
    return change_tables(unplaced, lambda table: {"ranks": table.ranks if max(table.ranks, default=0) < world else ()})


def _with_plan_file(scenario: Scenario, file: Path) -> Scenario:
    planner = Recommender.of(scenario.workload).planner
    assert planner.plan is not None, "a plan that was found is a file"
    plan = dataclasses.replace(planner.plan, path=file)
    return scenario.with_workload(planner=dataclasses.replace(planner, plan=plan))


def _without_notes() -> warnings.catch_warnings[None]:
    """Keep notes from being printed again: they were at the scenario's own prediction."""
    return warnings.catch_warnings(action="ignore", category=Note)


def _step_s(scenario: Scenario, program: Program) -> float:
    return mean_step_ns(Run.of(steps_of_draw(scenario, program)[0])) / 1e9

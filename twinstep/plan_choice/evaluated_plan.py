"""A simulated plan, the scenario that simulates it, and how long its step takes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scenarios.config.scenario import PlanFile, Recommender, Scenario, Table
from scenarios.planner.placed import Plan
from scenarios.planner.plan_file import PLAN_FILE, plan_json
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build_simulation, check_fits
from sim.run import play

STEPS = 3  # of a simulated plan, the last of which is evaluated


class SearchStoppedError(Exception):
    """A request to end the search early; the plans simulated until then are those tried."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A simulated plan: its proposal's name, its bottleneck rank's expected ms, and its simulated step in ns."""

    name: str
    expected_ms: float
    step_ns: int
    plan: Plan


def with_plan(scenario: Scenario, plan: Plan, folder: Path) -> Scenario:
    """Return the scenario with that plan, written into a folder, in place of the planner's."""
    gpu = scenario.cluster.host.gpu
    file, text = folder / PLAN_FILE, plan_json(plan, scenario.cluster.host.gpus, gpu.kind)
    file.write_text(text)
    types = {table.name: (table.sharding_type,) for table in plan.tables}
    given = PlanFile(path=file, sha256=hashlib.sha256(text.encode()).hexdigest(), is_found=True)
    planner = dataclasses.replace(Recommender.of(scenario.workload).planner, choose="estimated", plan=given)
    return change_tables(
        scenario.with_workload(planner=planner), lambda table: {"sharding": types[table.name], "ranks": ()}
    )


def change_tables(scenario: Scenario, changes: Callable[[Table], dict[str, Any]]) -> Scenario:
    """Return the scenario with changed fields of its tables."""
    model = Recommender.of(scenario.workload).model
    tables = tuple(dataclasses.replace(each, **changes(each)) for each in model.tables)
    return scenario.with_workload(model=dataclasses.replace(model, tables=tables))


def evaluate(scenario: Scenario, stop: Callable[[object], bool]) -> tuple[Recording, int, int]:
    """Return the run of a few steps, the step to evaluate, and the mean ns of a step over a sync period.

    Raises:
        ScenarioError: as `build_simulation` does.
        SearchStoppedError: `stop` ended the simulation.
    """
    replication = scenario.workload.replicas
    if replication is None or replication.sync_every == 1:
        steps = min(scenario.run.steps, STEPS)
        recording = record(scenario.with_run(steps=steps), stop)
        return recording, steps - 1, _step_ns(recording, steps - 1)
    seldom = dataclasses.replace(replication, sync_every=2)
    recording = record(scenario.with_workload(replication=seldom).with_run(steps=STEPS + 1), stop)
    alone_ns, averaging_ns = _step_ns(recording, STEPS - 1), _step_ns(recording, STEPS)
    return recording, STEPS - 1, alone_ns + round((averaging_ns - alone_ns) / replication.sync_every)


def record(
    scenario: Scenario, stop: Callable[[object], bool] = lambda _: False, program: Program | None = None
) -> Recording:
    """Return the run of a scenario, with its spans.

    NCCL's buffers are known only after a run, so memory is checked again then, unless the `program` is given.

    Raises:
        ScenarioError: as `build_simulation` does.
        SearchStoppedError: `stop` ended the simulation.
    """
    spans: list[Span] = []
    recording = play(scenario, program or build_simulation(scenario), spans.extend, stop=stop)
    if not recording.info.complete:
        raise SearchStoppedError
    if program is None:
        check_fits(scenario, recording.memory)
    recording.spans = sorted(spans, key=lambda span: (span.rank, span.stream, span.sequence))
    return recording


def _step_ns(recording: Recording, index: int) -> int:
    ranks = [one for one in recording.spans if one.kind == "step" and one.step == index]
    return max(one.end_ns for one in ranks) - min(one.start_ns for one in ranks)

"""A simulated plan, and the scenario that simulates it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scenarios.config.scenario import PlanFile, Recommender, Scenario, Table
from scenarios.planner.placed import Plan
from scenarios.planner.plan_file import PLAN_FILE, plan_json


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

"""Stores a scenario's plan of the tables for its variations, and counts the tables that a variation moves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from scenarios.config.scenario import Scenario
from scenarios.planner.plan_file import PLAN_FILE, plan_json
from scenarios.seam.trace import PlanRow
from scenarios.sharding_kind import COPIED_TYPES
from scenarios.workloads.locate import import_named


def kept_plan(scenario: Scenario, folder: Path) -> dict[str, object]:
    """Write the plan of the scenario's tables into a folder; return the values by key that fix it.

    With other hardware a planner may place tables differently, so that a step would change by more than the hardware. A
    scenario without a planner, or with a plan of its own, needs no values.

    Raises:
        ScenarioError: no plan fits.
    """
    planner = scenario.workload.plans
    if not planner or scenario.workload.plan_file is not None:
        return {}
    from twinstep.plan_choice import with_simulated_plan

    with with_simulated_plan(scenario) as planned:
        plan = import_named(planner, planned.scenario.program_folder)(planned.scenario)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / PLAN_FILE
    file.write_text(plan_json(plan, scenario.sharding_host_ranks, scenario.cluster.host.gpu.kind))
    return values_of(file, scenario)


def values_of(file: Path, scenario: Scenario) -> dict[str, object]:
    """Return the values with which a scenario uses the plan of a file instead of choosing one."""
    chosen = {"sharding.choose": "estimated"} if scenario.workload.finds_plan else {}
    return {"sharding.plan": str(file), **chosen}


def places(plan: Iterable[PlanRow]) -> dict[str, str]:
    """Return a digest of each table's places, by name; copies on all ranks count as one place."""
    shards: dict[str, set[tuple[object, ...]]] = {}
    for row in plan:
        # A copied table has no place that could change.
        where = () if row.sharding_type in COPIED_TYPES else (row.rank, row.row_offset, row.column_offset)
        size = row.rows, row.columns
        shards.setdefault(row.table, set()).add((row.sharding_type, row.compute_kernel, *where, *size))
    return {table: hashlib.sha256(repr(sorted(of)).encode()).hexdigest() for table, of in shards.items()}


def digest_of(tables: Mapping[str, str]) -> str:
    """Return a digest of all tables' places (see `places`); "" without tables."""
    return hashlib.sha256(repr(sorted(tables.items())).encode()).hexdigest()[:16] if tables else ""


def count_moved(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Return the number of tables with other places than before."""
    return sum(after.get(table) != place for table, place in before.items())

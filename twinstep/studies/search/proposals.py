"""Proposes the first points of a search: the baseline, and variants of it with the planner's sharding types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from scenarios.config.overrides.keys import indices_of, is_several, path_of
from scenarios.config.scenario import Recommender, Scenario
from scenarios.planner.plan import plan_tables
from scenarios.seam.errors import ScenarioError
from twinstep.studies.points import BASELINE, Point, as_it_is, resolve
from twinstep.studies.study_file import Study

_OF_PLANNER = ("sharding.choose", "sharding.types")
_TABLES = ("model", "tables")


def proposals(study: Study) -> Iterator[dict[str, object]]:
    """Yield values by key, possibly repeated; the sampler chooses missing keys.

    Proposals are the baseline; the types of the planner's plan for the baseline, for each table group; each type alone,
    as the planner proposes it; each value of the planner's options.
    """
    base = as_it_is(study)
    yield base
    for key in _OF_PLANNER:
        if key in study.keys:
            yield from ({**base, key: value} for value in study.values_of(key))
    scenario = resolve(study, Point(BASELINE, {})).scenario
    groups = {} if scenario is None else _groups(study, scenario)
    if scenario is None or not groups:
        return
    if planned := _planned_types(scenario):
        yield {**base, **_closest(study, {key: [planned[table] for table in of] for key, of in groups.items()})}
    for kind in sorted({kind for key in groups for types in study.values_of(key) for kind in _types(types)}):
        yield {**base, **_closest(study, {key: [kind] for key in groups})}


def _groups(study: Study, scenario: Scenario) -> dict[str, list[int]]:
    """Return the tables whose sharding types each varied key sets."""
    count = len(scenario.workload.tables)
    by_key: dict[str, list[int]] = {}
    for key in study.keys:
        path = path_of(key) or ()
        if path[:2] == _TABLES and len(path) == 4 and path[3] == "sharding":
            several = indices_of(str(path[2]), count) if is_several(path[2]) else [int(path[2])]
            by_key[key] = [index for index in several if index < count]
    return {key: tables for key, tables in by_key.items() if tables}


def _planned_types(scenario: Scenario) -> dict[int, str]:
    """Return the sharding type of each table in the planner's own plan; empty where no plan fits."""
    numbers = {table.name: number for number, table in enumerate(scenario.workload.tables)}
    with suppress(ScenarioError):
        planner = replace(Recommender.of(scenario.workload).planner, choose="estimated")
        plan = plan_tables(scenario.with_workload(planner=planner))
        return {numbers[table.name]: table.sharding_type for table in plan.tables}
    return {}


def _closest(study: Study, wanted: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return for each key the value that allows the most of the wanted types, and the fewest others."""
    by_key: dict[str, object] = {}
    for key, types in wanted.items():
        of_value = [(sum(kind in _types(value) for kind in types), value) for value in study.values_of(key)]
        most, value = max(of_value, key=lambda each: (each[0], -len(_types(each[1]))))
        if most:
            by_key[key] = value
    return by_key


def _types(value: object) -> list[str]:
    return [str(kind) for kind in value] if isinstance(value, list) else []

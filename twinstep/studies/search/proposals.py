"""Where a search begins: the baseline, and with its other values the sharding types that the planner proposes."""

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
    """Values by key, some of them twice; keys that one does not have are the sampler's to choose.

    The baseline; the types of the planner's plan for the baseline, each table group's; each type alone, as the planner
    proposes them; each value of what the planner may do.
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
    """The tables whose sharding types each varied key sets."""
    count = len(scenario.workload.tables)
    found: dict[str, list[int]] = {}
    for key in study.keys:
        path = path_of(key) or ()
        if path[:2] == _TABLES and len(path) == 4 and path[3] == "sharding":
            several = indices_of(str(path[2]), count) if is_several(path[2]) else [int(path[2])]
            found[key] = [index for index in several if index < count]
    return {key: tables for key, tables in found.items() if tables}


def _planned_types(scenario: Scenario) -> dict[int, str]:
    """The sharding type of each table in the planner's own plan; nothing where none fits."""
    numbers = {table.name: number for number, table in enumerate(scenario.workload.tables)}
    with suppress(ScenarioError):
        planner = replace(Recommender.of(scenario.workload).planner, choose="estimated")
        plan = plan_tables(scenario.with_workload(planner=planner))
        return {numbers[table.name]: table.sharding_type for table in plan.tables}
    return {}


def _closest(study: Study, wanted: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Of each key the value that allows the most of the wanted types, and of those the one that allows the fewest."""
    found: dict[str, object] = {}
    for key, types in wanted.items():
        of_value = [(sum(kind in _types(value) for kind in types), value) for value in study.values_of(key)]
        most, value = max(of_value, key=lambda each: (each[0], -len(_types(each[1]))))
        if most:
            found[key] = value
    return found


def _types(value: object) -> list[str]:
    return [str(kind) for kind in value] if isinstance(value, list) else []

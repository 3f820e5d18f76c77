"""Plays a scenario again and again, with one thing of it changed at a time: what `--what-if` asks for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scenarios.config.scenario import Scenario
from scenarios.config.toml.mistakes import toml_text
from scenarios.config.toml.tree import Tree
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import ChangeRow
from sim.study.counterfactuals import Counterfactual, counterfactuals
from sim.study.kept_plan import moved
from sim.study.play import play_point
from sim.study.task import Result, Speeds, Task

Gain = tuple[float, float, float]

_AS_IT_IS = "as it is"
DRAWS = 4
"""Further draws of each change, where the hardware's times vary from draw to draw and the command names no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A scenario to be changed, and how it came out as it is.

    Attributes:
        load: the scenario with further values of its keys.
        plan: the values that keep the plan of its tables; none without tables, or where the scenario names a plan.
        places: where its tables lie, as `places` of `kept_plan` has it.
        draws: further draws of each change.
        gain: of a change's `speeds`, how much quicker it is than the scenario: the ratio, and an interval of it.
    """

    load: Callable[[Mapping[str, object]], Scenario]
    plan: Mapping[str, object]
    places: Mapping[str, str]
    draws: int
    gain: Callable[[Speeds], Gain]

    def as_it_is(self, measures: Mapping[str, object]) -> ChangeRow:
        """Return the row of the scenario without a change, whose numbers are known."""
        return _row(_AS_IT_IS, "", {}, Result(status="done", measures=measures), tables=len(self.places))

    def changes(self, scenario: Scenario, tree: Tree) -> list[Counterfactual]:
        """Return the changes that the scenario can have; `tree` is the scenario as it is written."""
        return [one for one in counterfactuals(scenario, tree) if self._ways(one)]

    def play(self, one: Counterfactual) -> ChangeRow | None:
        """Simulate a change, with the plan as it is if tables still fit; None if the scenario cannot have it after all.

        Where tables cannot stay, the planner places them anew, and the row says how many have moved.
        """
        ways = self._ways(one)
        for values in ways:
            result = self._result(values)
            if result.status != "scenario error":
                break
        else:
            if not one.takes_memory:
                return None
        count = moved(self.places, result.places) if result.status == "done" else 0
        gain = self.gain(result.speeds)
        return _row(one.name, one.group, values, result, tables=len(self.places), moved_tables=count, gain=gain)

    def _ways(self, one: Counterfactual) -> list[Mapping[str, object]]:
        """Return the values that make the change, those that keep the plan first; without those that are refused."""
        kept = [] if one.plans_anew or not self.plan else [{**one.values, **self.plan}]
        return [values for values in (*kept, one.values) if self._is_accepted(values)]

    def _is_accepted(self, values: Mapping[str, object]) -> bool:
        try:
            self.load(values)
        except ScenarioError:
            return False
        return True

    def _result(self, values: Mapping[str, object]) -> Result:
        scenario = self.load(values)
        return play_point(
            Task(
                scenario=scenario,
                fidelity=scenario.fidelity,
                timeout_s=math.inf,
                keep="rows",
                draws=self.draws,
                measures_draw_0=True,
            )
        )


def _row(
    name: str,
    group: str,
    values: Mapping[str, object],
    result: Result,
    *,
    tables: int,
    moved_tables: int = 0,
    gain: Gain = (1.0, 1.0, 1.0),
) -> ChangeRow:
    def known(name: str) -> float:
        value = result.measures.get(name)
        return value if isinstance(value, float) and math.isfinite(value) else 0.0

    speed, low, high = gain if result.status == "done" else (0.0, 0.0, 0.0)
    return ChangeRow(
        change=name,
        group=group,
        options=options_of(values),
        status=result.status,
        sentence=result.sentence,
        step_ns=known("step_ns"),
        samples_per_s=known("samples_per_s"),
        usd_per_1e9_samples=known("usd_per_1e9_samples"),
        transfer_ns=known("transfer_ns"),
        wait_ns=known("wait_ns") + known("skew_ns"),
        speed=speed,
        speed_low=low,
        speed_high=high,
        tables=tables,
        tables_moved=moved_tables,
    )


def options_of(values: Mapping[str, object]) -> str:
    """Return the options of a command line that give these values."""
    written = [f"{key}={value if isinstance(value, str) else toml_text(value)}" for key, value in values.items()]
    return shlex.join(word for one in written for word in ("--set", one))

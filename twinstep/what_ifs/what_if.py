"""Simulate a scenario repeatedly with one change at a time, for `--what-if`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.sections.run.changes import NOT_TRIED
from scenarios.config.scenario import Scenario
from scenarios.config.toml.mistakes import toml_text
from scenarios.config.toml.tree import Tree
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.seam.trace import ChangeRow
from sim.rank.observed import Observed, as_it_is
from twinstep.studies.kept_plan import count_moved
from twinstep.studies.play import play_point
from twinstep.studies.task import Result, Speeds, Task
from twinstep.what_ifs.counterfactuals import Counterfactual, counterfactuals
from twinstep.what_ifs.program_changes.proposals import program_changes

Gain = tuple[float, float, float]

_AS_IT_IS = "as it is"
# The least gain of a change of the program that is shown.
LEAST_GAIN = 0.001
SECONDS = 120.0
"""The default of `--seconds`."""
DRAWS = 4
"""Further draws of each change, where the hardware's times vary from draw to draw and the command names no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A scenario to be changed, and its unchanged result.

    Attributes:
        load: returns the scenario with further values of its keys.
        plan: the values that keep the plan of its tables; empty without tables, or where the scenario names a plan.
        places: the places of its tables, as `places` of `kept_plan` returns them.
        draws: the number of further draws of each change.
        gain: returns the ratio of a change's `speeds` to the scenario's, and an interval of it.
        program: the scenario's, with which changes of the program are simulated; None: it is built for each.
        replans: whether changes of settings and hardware have their tables planned anew, as the scenario's are.
    """

    load: Callable[[Mapping[str, object]], Scenario]
    plan: Mapping[str, object]
    places: Mapping[str, str]
    draws: int
    gain: Callable[[Speeds], Gain]
    program: Program | None = None
    replans: bool = False

    def as_it_is(self, measures: Mapping[str, object]) -> ChangeRow:
        """Return the row of the scenario without a change, whose numbers are known."""
        return _row(_AS_IT_IS, "", "", Result(status="done", measures=measures), tables=len(self.places))

    def changes(self, scenario: Scenario, tree: Tree, observed: Observed | None = None) -> list[Counterfactual]:
        """Return the changes that the scenario can have, those first that take least time to simulate.

        `tree` is the scenario as it is written; `observed` are its computations, for changes of its program.
        """
        of_program = list[Counterfactual]()
        if observed is not None and self.program is not None:
            of_program = program_changes(scenario, self.program, observed)
        others = counterfactuals(scenario, tree)
        if self.replans:
            others = list(map(_replan, others))
        possible = [one for one in (*of_program, *others) if one.barred or self._ways(one)]
        return sorted(possible, key=lambda one: 0 if one.barred else one.effort)

    def not_tried(self, changes: Sequence[Counterfactual], why: str) -> list[ChangeRow]:
        """Return the rows of changes that were not simulated, for a reason in words."""
        known = Result(status=NOT_TRIED, sentence=why)
        return [_row(one.name, one.group, "", known, tables=len(self.places)) for one in changes]

    def play(self, one: Counterfactual, timeout_s: float = math.inf) -> ChangeRow | None:
        """Simulate a change, with the present plan if tables still fit.

        If tables cannot stay, the planner places them again, and the row states how many moved. None is returned if the
        scenario cannot have the change after all, or if it changes the program and gains nothing. A simulation that
        takes longer than the timeout has status "timed out".
        """
        if one.barred:
            barred = Result(status="program error", sentence=one.barred)
            return _row(one.name, one.group, "", barred, tables=len(self.places))
        values: Mapping[str, object] = one.values
        result: Result | None = None
        for values in self._ways(one):
            result = self._result(values, one, timeout_s)
            if result.status != "scenario error":
                break
        if result is None or (result.status == "scenario error" and not one.takes_memory):
            return None
        count = count_moved(self.places, result.places) if result.status == "done" else 0
        gain = self.gain(result.speeds)
        if (one.rewrite or one.program) and result.status == "done" and gain[0] - 1 < LEAST_GAIN:
            return None
        made_by = options_of(values) if one.values else one.made_by
        return _row(one.name, one.group, made_by, result, tables=len(self.places), moved_tables=count, gain=gain)

    def _ways(self, one: Counterfactual) -> list[Mapping[str, object]]:
        """Return the accepted sets of values that make the change, those that keep the plan first."""
        kept = [] if one.plans_anew or not self.plan else [{**one.values, **self.plan}]
        return [values for values in (*kept, one.values) if self._is_accepted(values)]

    def _is_accepted(self, values: Mapping[str, object]) -> bool:
        try:
            self.load(values)
        except ScenarioError:
            return False
        return True

    def _result(self, values: Mapping[str, object], one: Counterfactual, timeout_s: float) -> Result:
        scenario = self.load(values)
        return play_point(
            Task(
                scenario=scenario,
                program=(one.program or self.program) if one.replays else None,
                rewrite=one.rewrite or as_it_is,
                fidelity=scenario.run.fidelity,
                timeout_s=timeout_s,
                keep="rows",
                draws=self.draws,
                measures_draw_0=True,
            )
        )


def _replan(one: Counterfactual) -> Counterfactual:
    """Return a change with its tables planned anew; a diagnosis keeps the plan, as it changes nothing but its cause."""
    if one.plans_anew or one.group == "diagnosis":
        return one
    return replace(one, name=f"{one.name}, planned anew", plans_anew=True)


def _row(
    name: str,
    group: str,
    made_by: str,
    result: Result,
    *,
    tables: int,
    moved_tables: int = 0,
    gain: Gain = (1.0, 1.0, 1.0),
) -> ChangeRow:
    def known_number(name: str) -> float:
        value = result.measures.get(name)
        return value if isinstance(value, float) and math.isfinite(value) else 0.0

    speed, low, high = gain if result.status == "done" else (0.0, 0.0, 0.0)
    return ChangeRow(
        change=name,
        group=group,
        options=made_by,
        status=result.status,
        sentence=result.sentence,
        step_ns=known_number("step_ns"),
        samples_per_s=known_number("samples_per_s"),
        usd_per_1e9_samples=known_number("usd_per_1e9_samples"),
        transfer_ns=known_number("transfer_ns"),
        wait_ns=known_number("wait_ns") + known_number("skew_ns"),
        speed=speed,
        speed_low=low,
        speed_high=high,
        tables=tables,
        tables_moved=moved_tables,
    )


def options_of(values: Mapping[str, object]) -> str:
    """Return the options of a command line that set these values."""
    written = [f"{key}={value if isinstance(value, str) else toml_text(value)}" for key, value in values.items()]
    return shlex.join(word for one in written for word in ("--set", one))

"""A scenario as a job whose plans are compared."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reports.run import Run
from reports.sections.plans import YOURS, SimulatedPlan
from scenarios.config.load import load
from scenarios.config.scenario import Recommender, Scenario
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import MODULE, plan_json
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.script.command import tree_given
from twinstep.plan_choice.comparison import Simulated
from twinstep.plan_choice.evaluated_plan import STEPS, record
from twinstep.studies.kept_plan import values_of
from twinstep.what_ifs.what_if import options_of


class ScenarioJob:
    """A scenario whose plans are compared, and the file of the user's plan, if there is one."""

    least_steps = STEPS
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, overrides: Mapping[str, object], against: Path | None, module: str = MODULE) -> None:
        """Load the scenario, also with the user's plan, so that mistakes are reported before long work.

        Raises:
            ScenarioError: mistakes in it, or its program has no tables to place.
        """
        self._path, self._overrides, self._module = path, overrides, module
        self._free, self._given = self._without_plan(against)
        planner = Recommender.of(self._free.workload).planner
        self.name, self.reserved_share = self._free.name, planner.reserved_share
        self.tables = self._free.with_workload(planner=replace(planner, choose="estimated"))
        if self._given is not None:
            self._apply_plan(self._given)

    def yours(self, steps: int) -> tuple[Simulated, Plan] | None:
        """Simulate the user's plan, as `PlannedJob.yours` says."""
        if self._given is None:
            return None
        planned = self._apply_plan(self._given)
        run = Run.of(record(planned.with_run(steps=steps)))
        return (SimulatedPlan(YOURS, run), self._given.read_text(encoding="utf-8")), plan_tables(planned)

    def simulate(
        self, name: str, plan: Plan, steps: int, folder: Path, stop: Callable[[object], bool] = lambda _: False
    ) -> Simulated:
        """Simulate the scenario with a plan, as `PlannedJob.simulate` says."""
        file, cluster = folder / "simulated.json", self._free.cluster
        content = plan_json(plan, self._free.sharding_host_ranks, cluster.host.gpu.kind, self._module)
        file.write_text(content, encoding="utf-8")
        return SimulatedPlan(name, Run.of(record(self._apply_plan(file).with_run(steps=steps), stop))), content

    def command(self, file: Path, steps: int, options: Sequence[str]) -> str:
        """Return the command that predicts as many steps with the plan of a file; `options` set keys of their name."""
        given = {**self._overrides, **kept_ranks(self._free)}
        if steps < self._free.run.steps:
            given["steps"] = steps
        words = ["twinstep", "predict", str(self._path)]
        for name in [name for name in given if name in options]:
            words += [f"--{name.replace('_', '-')}", str(given.pop(name))]
        return f"{shlex.join(words)} {options_of({**given, **values_of(file, self._free)})}"

    def _apply_plan(self, file: Path) -> Scenario:
        """Return the scenario with the plan of a file."""
        return load(self._path, {**self._overrides, **kept_ranks(self._free), **values_of(file.absolute(), self._free)})

    def _without_plan(self, against: Path | None) -> tuple[Scenario, Path | None]:
        scenario = load(self._path, self._overrides)
        if not scenario.workload.tables:
            raise ScenarioError(
                f"{scenario.path}: program = '{scenario.program}': expected one with tables to place, such as 'dlrm'"
            )
        own = scenario.workload.plan_file
        if own is None:
            return scenario, against
        # Without the plan, sharding types are again those that the scenario allows.
        section = tree_given(self._path, self._overrides, scenario).values["sharding"]
        section = {key: value for key, value in section.items() if key != "plan"}
        others = {key: value for key, value in self._overrides.items() if not key.startswith("sharding.")}
        return load(self._path, {**others, "sharding": section}), against or own.path


def kept_ranks(free: Scenario) -> dict[str, object]:
    """Return the value with which scenarios with a plan simulate the same ranks as the one without, if it chose them.

    A plan with fewer sharding types needs less effort, for which every rank would be simulated.
    """
    return {"ranks": free.run.ranks} if free.run.chosen else {}

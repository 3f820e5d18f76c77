"""Choose the plan that is fastest in the simulator, in place of the planner's own."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from scenarios.config.scenario import Recommender, Scenario
from scenarios.config.units import format_ns
from scenarios.owned_folder import scratch_folder
from scenarios.seam.program import Program
from scenarios.workloads.build import build_simulation
from twinstep.plan_choice.evaluated_plan import Tried, with_plan
from twinstep.plan_choice.search import PLANNERS_OWN, PlanSearch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of the fastest among the simulated plans `tried`, the planner's first: its own, or one that fits."""

    best: Tried
    tried: tuple[Tried, ...]

    @property
    def gain(self) -> float:
        """The share of the step under the planner's plan that the best plan saves."""
        return 1 - self.best.step_ns / self.tried[0].step_ns

    @property
    def sentence(self) -> str:
        """The result in words, without a full stop."""
        best, first = (format_ns(tried.step_ns) for tried in (self.best, self.tried[0]))
        plans = f"plan: the fastest of {len(self.tried)} simulated, {best} per step"
        own, name = "the planner's own", self.tried[0].name
        if name != PLANNERS_OWN:
            return f"{plans}; {own} does not fit, but takes {first} with {name}"
        return f"{plans}, {self.gain:.1%} less than {own} ({first})"


class Planned(NamedTuple):
    """A scenario that can be built, and notes on its plan, sentences without a full stop."""

    scenario: Scenario
    notes: tuple[str, ...] = ()


@contextmanager
def with_simulated_plan(
    scenario: Scenario, say: Callable[[str], None] = lambda _: None, stop: Callable[[], bool] = lambda: False
) -> Iterator[Planned]:
    """Yield the scenario with its plan found by simulation if it requests that, else unchanged.

    The plan's file exists inside the context only. `stop` is asked again and again whether to end the search.

    Raises:
        ScenarioError: no plan fits.
        SearchStoppedError: the search was to stop.
    """
    if not scenario.workload.finds_plan:
        yield Planned(scenario)
        return
    with scratch_folder() as folder:
        say("choosing a plan")
        begin = time.perf_counter()
        choice = choose_plan(scenario, folder, stop)
        note = f"{choice.sentence}; the search took {time.perf_counter() - begin:.0f} s"
        yield Planned(with_plan(scenario, choice.best.plan, folder), (note,))


def build_planned(
    scenario: Scenario,
    say: Callable[[str], None] = lambda _: None,
    does: Callable[[str, str], None] = Program.does,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Scenario, Program]:
    """Plan the scenario's tables as it requests, and build the program of the scenario with that plan.

    Raises:
        ScenarioError: no plan fits; or as `build_simulation` does.
        SearchStoppedError: `stop` ended the search for the plan.
    """
    with with_simulated_plan(scenario, say, stop) as found:
        program = build_simulation(found.scenario, does)
    program.plan_notes = (*program.plan_notes, *found.notes)
    return found.scenario, program


def choose_plan(scenario: Scenario, folder: Path, stop: Callable[[], bool] = lambda: False) -> Choice:
    """Search for the fastest plan: propose, simulate, update costs; `folder` has the file of the plan being simulated.

    Equal scenarios give equal plans, because a search that `stop` ends gives none.

    Raises:
        ScenarioError: no plan fits.
        SearchStoppedError: the search was to stop.
    """
    planner = dataclasses.replace(Recommender.of(scenario.workload).planner, choose="estimated")
    search = PlanSearch(scenario.with_workload(planner=planner), folder, stop)
    search.run()
    return Choice(best=min(search.tried, key=lambda tried: tried.step_ns), tried=tuple(search.tried))

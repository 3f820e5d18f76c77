"""The plan that the simulator finds quickest, in place of the planner's own."""

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
from twinstep.plan_choice.search import PlanSearch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The quickest plan of those that were `tried`, the planner's own first."""

    best: Tried
    tried: tuple[Tried, ...]

    @property
    def gain(self) -> float:
        """Share of the step under the planner's own plan that the best one saves."""
        return 1 - self.best.step_ns / self.tried[0].step_ns

    @property
    def sentence(self) -> str:
        """What was found; without a full stop."""
        best, first = (format_ns(tried.step_ns) for tried in (self.best, self.tried[0]))
        plans = f"plan: the quickest of {len(self.tried)} that were simulated, {best} a step"
        return f"{plans}; the planner's own takes {first}, {self.gain:.1%} of which is saved"


class Planned(NamedTuple):
    """A scenario that can be built, and what there is to be said of its plan, in sentences without a full stop."""

    scenario: Scenario
    notes: tuple[str, ...] = ()


@contextmanager
def with_simulated_plan(scenario: Scenario, say: Callable[[str], None] = lambda _: None) -> Iterator[Planned]:
    """Give the scenario with the plan that it asks to be found by simulation, whose file is there inside; one that asks
    for none as it is.

    Raises:
        ScenarioError: no plan fits.
    """
    if not scenario.workload.finds_plan:
        yield Planned(scenario)
        return
    with scratch_folder() as folder:
        say("choosing a plan")
        begin = time.perf_counter()
        choice = choose_plan(scenario, folder)
        note = f"{choice.sentence}; finding it took {time.perf_counter() - begin:.0f} s"
        yield Planned(with_plan(scenario, choice.best.plan, folder), (note,))


def build_planned(
    scenario: Scenario,
    say: Callable[[str], None] = lambda _: None,
    does: Callable[[str, str], None] = Program.does,
) -> tuple[Scenario, Program]:
    """Plan the scenario's tables as it asks, and build the program of the scenario with that plan.

    Raises:
        ScenarioError: no plan fits; or as of `build_simulation`.
    """
    with with_simulated_plan(scenario, say) as found:
        program = build_simulation(found.scenario, does)
    program.plan_notes = (*program.plan_notes, *found.notes)
    return found.scenario, program


def choose_plan(scenario: Scenario, folder: Path) -> Choice:
    """Propose, play and price anew; a plan is a file in `folder` while it is played.

    The same scenario gives the same plan: no clock is looked at.

    Raises:
        ScenarioError: no plan fits.
    """
    planner = dataclasses.replace(Recommender.of(scenario.workload).planner, choose="estimated")
    search = PlanSearch(scenario.with_workload(planner=planner), folder)
    search.run()
    return Choice(best=min(search.tried, key=lambda tried: tried.step_ns), tried=tuple(search.tried))

"""Simulate a user's plan, the planner's own and the best one that a search finds in limited time, as predictions do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from reports.sections.plans import BEST, PLANNERS, YOURS, SimulatedPlan
from reports.terminal import text
from scenarios.config.scenario import Scenario
from scenarios.owned_folder import scratch_folder
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import NoRoomError, ScenarioError
from twinstep.plan_choice.evaluated_plan import SearchStoppedError
from twinstep.plan_choice.search import PLANNERS_OWN, PlanSearch
from twinstep.progress import Interrupt

# The share of the time in which the planner's own plan must be simulated, or all plans are simulated for fewer steps.
_FIRST = 0.25
# The number of the search's best plans that are simulated for all steps; the first always is, others if time is left.
_FINALS = 2
# The share of the time left, at most, that the search leaves to the simulations after it.
_LEFT = 0.5
# A simulation may take this much longer than the one before it.
_MARGIN = 1.5

Simulated = tuple[SimulatedPlan, str]  # a plan, and its file's content


class PlannedJob(Protocol):
    """A job whose tables are placed, by one plan after another.

    Attributes:
        tables: the scenario of the tables, without a plan, that the search simulates.
        least_steps: the number of steps to which a simulation with another plan may be cut.
    """

    tables: Scenario
    least_steps: int

    def yours(self, steps: int) -> tuple[Simulated, Plan] | None:
        """Simulate the user's plan; None if there is none.

        Raises:
            NoRoomError: the plan does not fit.
        """

    def simulate(
        self, name: str, plan: Plan, steps: int, folder: Path, stop: Callable[[object], bool] = lambda _: False
    ) -> Simulated:
        """Simulate the job with a plan, of which `folder` gets a file, as a prediction with that file does.

        Raises:
            NoRoomError: the plan does not fit.
            SearchStoppedError: `stop` ended the simulation.
        """


class TimeLimit:
    """A time from now on until which a search may simulate; the first Ctrl-C ends it, too."""

    def __init__(self, seconds: float, line: ProgressLine, now_s: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._line, self._now_s = seconds, line, now_s
        self._began_s = now_s()
        self.interrupt = Interrupt()
        self.words = "simulating your plan"

    @property
    def passed_s(self) -> float:
        """The seconds since the beginning."""
        return self._now_s() - self._began_s

    def is_over(self, *, kept_s: float = 0.0) -> bool:
        """Return whether the search is to end, so that `kept_s` are left."""
        self.draw()
        return self.interrupt.requested or self.passed_s > self.seconds - kept_s

    def draw(self, _: object = None) -> bool:
        """Draw the progress; return False, as nothing is to end by it."""
        if self._line.is_due():
            self._line.draw(self.words, min(self.passed_s / self.seconds, 1.0), f"{self.passed_s:.0f} s")
        return False

    @property
    def reason(self) -> str:
        """The reason why a search ended early, in words."""
        return "interrupted" if self.interrupt.requested else f"stopped after {self.seconds:g} s (--seconds)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Simulated plans, the best one last and as JSON, and how many were simulated for how many steps.

    `stopped` says in words what ended the search early; "": nothing did. `misfits` says why the user's plan or the
    planner's, which are not among the plans then, do not fit. `few`: the user's plan with its first move, with the
    first two ...
    """

    plans: tuple[SimulatedPlan, ...]
    best_json: str
    tried: int
    stopped: str
    steps: int
    misfits: Mapping[str, str]
    few: tuple[SimulatedPlan, ...] = ()


def compare_plans(job: PlannedJob, limit: TimeLimit, moves: int = 0) -> Compared:
    """Simulate the planner's own plan, the given one, and plans of a search until the limit; keep the fastest.

    `moves` is the number of single moves from the user's plan to simulate, each with those before it.

    Raises:
        ScenarioError: no plan fits.
    """
    with scratch_folder() as folder:
        made = _Comparison(job, limit, folder)
        planners = made.simulate_planners()
        yours, start = made.simulate_yours()
        with limit.interrupt:
            kept_s = min(made.took_s * (1 + moves * len(yours)), (limit.seconds - limit.passed_s) * _LEFT)
            search = PlanSearch(job.tables, folder, lambda: _is_over(search, limit, kept_s))
            stopped = made.search(search, start)
            kept_s = made.took_s
            few = [*made.move_tables(search, start, moves)]
            known = [*planners, *yours, *few, *made.simulate_finals(search)]
    best, best_json = min(known, key=lambda each: each[0].step_ns)
    return Compared(
        plans=(*(one for one, _ in (*yours, *planners)), best),
        best_json=best_json,
        tried=len(search.tried) + len(yours) + len(few),
        stopped=stopped,
        steps=made.steps,
        misfits=made.misfits,
        few=tuple(one for one, _ in few),
    )


class _Comparison:
    """The simulations of a comparison: for how many steps, how long one takes, and which of the first do not fit."""

    def __init__(self, job: PlannedJob, limit: TimeLimit, folder: Path) -> None:
        self._job, self._limit, self._folder = job, limit, folder
        self.steps, self.took_s = job.tables.run.steps, 0.0
        self.misfits: dict[str, str] = {}

    def simulate_planners(self) -> list[Simulated]:
        """Simulate the planner's plan, for fewer steps from then on if all take too long; empty: it does not fit."""
        self._limit.words = "simulating the planner's plan"
        plan, kept_s = plan_tables(self._job.tables), (1 - _FIRST) * self._limit.seconds
        try:
            if self.steps > self._job.least_steps:
                with suppress(SearchStoppedError):
                    return [self._simulate(PLANNERS, plan, lambda _: self._limit.is_over(kept_s=kept_s))]
                self.steps = self._job.least_steps
            return [self._simulate(PLANNERS, plan)]
        except NoRoomError as error:
            self.misfits[PLANNERS] = f"The plan of {PLANNERS} does not fit: {error}"
            return []

    def simulate_yours(self) -> tuple[list[Simulated], Plan | None]:
        """Simulate the user's plan; return it, too; empty: there is none, or it does not fit."""
        self._limit.words = "simulating your plan"
        try:
            found = self._job.yours(self.steps)
        except NoRoomError as error:
            self.misfits[YOURS] = f"{YOURS.capitalize()} does not fit: {error}"
            found = None
        return ([], None) if found is None else ([found[0]], found[1])

    def search(self, search: PlanSearch, start: Plan | None) -> str:
        """Search until no proposal is left, or the limit; return what stopped the search, in words, "" if nothing did.

        Raises:
            ScenarioError: no plan fits, and there is none to `start` from.
        """
        try:
            search.run()
            self._note_reserve(search)
            search.go_on(start or search.tried[0].plan)
        except SearchStoppedError:
            self._note_reserve(search)
            return self._limit.reason
        except ScenarioError:
            if start is None:
                raise
        return ""

    def _note_reserve(self, search: PlanSearch) -> None:
        """Note with which share of memory kept from tables the planner's plan fits."""
        if PLANNERS in self.misfits and search.tried[0].name != PLANNERS_OWN:
            self.misfits[PLANNERS] += f"; with {search.tried[0].name} the planner makes one that fits"

    def move_tables(self, search: PlanSearch, start: Plan | None, most: int) -> Iterator[Simulated]:
        """Yield the plan with its first move, with its first two ..., while moves help, plans fit and there is time."""
        last = start
        for moves in range(1, most + 1):
            try:
                plan = None if start is None else search.move_tables(start, moves)
                if plan is None or last is None or plan.tables == last.tables:
                    return
                yield self._simulate(BEST, plan)
            except (NoRoomError, SearchStoppedError):
                return
            last = plan

    def simulate_finals(self, search: PlanSearch) -> Iterator[Simulated]:
        """Yield the search's best plans, simulated for all steps: the first always, others if there is time."""
        found, left = [tried for tried in search.tried if tried.name != PLANNERS_OWN], _FINALS
        for number, tried in enumerate(sorted(found, key=lambda each: each.step_ns)):
            if not left or (number and self._limit.is_over(kept_s=self.took_s)):
                return
            self._limit.words = "simulating the best plan found for all steps"
            with suppress(NoRoomError):  # a script has other memory than its tables alone
                yield self._simulate(BEST, tried.plan)
                left -= 1

    def _simulate(self, name: str, plan: Plan, stop: Callable[[object], bool] = lambda _: False) -> Simulated:
        began_s = self._limit.passed_s
        found = self._job.simulate(name, plan, self.steps, self._folder, stop)
        self.took_s = _MARGIN * (self._limit.passed_s - began_s)
        return found


def _is_over(search: PlanSearch, limit: TimeLimit, kept_s: float) -> bool:
    best_ns = min((tried.step_ns for tried in search.tried), default=0)
    limit.words = (
        f"searching: {text.count_words(len(search.tried), 'plan')} simulated, the best takes {text.duration(best_ns)}"
    )
    return limit.is_over(kept_s=kept_s)

"""Simulate a user's plan, the planner's own and the best one that a search finds in limited time, as predictions do."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reports.run import Run
from reports.sections.plans import BEST, PLANNERS, YOURS, SimulatedPlan
from reports.terminal import text
from scenarios.config.scenario import Recommender, Scenario
from scenarios.owned_folder import scratch_folder
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import MODULE, plan_json
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import NoRoomError
from scenarios.seam.trace import Span
from scenarios.workloads.build import build_simulation
from sim.run import play
from twinstep.plan_choice.search import STEPS, PlanSearch, SearchStoppedError
from twinstep.progress import Interrupt

# The share of the time in which the planner's own plan must be simulated, or all plans are simulated for fewer steps.
_FIRST = 0.25
# The number of the search's best plans that are simulated for all steps; the first always is, others if time is left.
_FINALS = 2
# A simulation may take this much longer than the one before it.
_MARGIN = 1.5


class TimeLimit:
    """A time from now on until which a search may simulate; the first Ctrl-C ends it, too."""

    def __init__(self, seconds: float, line: ProgressLine, now_s: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._line, self._now_s = seconds, line, now_s
        self._began_s = now_s()
        self.interrupt = Interrupt()
        self.words = "simulating the planner's plan"

    @property
    def passed_s(self) -> float:
        """The seconds since the beginning."""
        return self._now_s() - self._began_s

    def is_over(self, *, kept_s: float = 0.0) -> bool:
        """Return whether the search is to end, so that `kept_s` are left."""
        if self._line.is_due():
            self._line.draw(self.words, min(self.passed_s / self.seconds, 1.0), f"{self.passed_s:.0f} s")
        return self.interrupt.requested or self.passed_s > self.seconds - kept_s

    @property
    def reason(self) -> str:
        """What ended a search early, in words."""
        return "interrupted" if self.interrupt.requested else f"stopped after {self.seconds:g} s (--seconds)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Simulated plans, the best one last and as JSON, and how many were simulated for how many steps.

    `stopped` says in words what ended the search early; "": nothing did. `misfit` says why the user's plan, which is
    not among the plans then, does not fit; "": it fits, or there is none. `few`: the user's plan with its first move,
    with the first two ...
    """

    plans: tuple[SimulatedPlan, ...]
    best_json: str
    tried: int
    stopped: str
    steps: int
    misfit: str = ""
    few: tuple[SimulatedPlan, ...] = ()


def compare_plans(
    free: Scenario,
    planned: Callable[[Path], Scenario],
    given: Path | None,
    limit: TimeLimit,
    module: str = MODULE,
    moves: int = 0,
) -> Compared:
    """Simulate the planner's own plan, the given one, and plans of a search until the limit; keep the fastest.

    Args:
        free: the scenario without a plan of its own.
        planned: returns the scenario with the plan of a file, as predictions load it.
        given: the file of the user's plan, if there is one.
        limit: of the time.
        module: of the tables in the best plan's JSON.
        moves: the number of single moves from the user's plan to simulate, each with those before it.

    Raises:
        ScenarioError: no plan fits.
    """
    planner = dataclasses.replace(Recommender.of(free.workload).planner, choose="estimated")
    free = free.with_workload(planner=planner)
    steps, began_s = free.run.steps, limit.passed_s
    run = _simulate(free, lambda _: steps > STEPS and limit.is_over(kept_s=(1 - _FIRST) * limit.seconds))
    if run is None:
        steps, began_s = STEPS, limit.passed_s
        run = _whole(free.with_run(steps=steps))
    took_s = _MARGIN * (limit.passed_s - began_s)
    yours, misfit = _simulate_yours(planned, given, steps, limit)
    with limit.interrupt, scratch_folder() as folder:
        plans = _Plans(free, planned, steps, module, folder)
        kept_s = took_s * (1 + moves * len(yours))
        search = PlanSearch(free, folder, lambda: _is_over(search, limit, kept_s))
        start = plan_tables(planned(given) if given is not None and yours else free)
        stopped = _search(search, start, limit)
        kept_s = took_s
        few = [*_move_tables(search, start, plans, moves if yours else 0)]
        own = SimulatedPlan(PLANNERS, run), _json(free, search.tried[0].plan, module)
        known = [own, *yours, *few, *_play_finals(search, plans, limit, took_s)]
    best, best_json = min(known, key=lambda each: each[0].step_ns)
    return Compared(
        plans=(*(one for one, _ in yours), own[0], best),
        best_json=best_json,
        tried=len(search.tried) + len(yours) + len(few),
        stopped=stopped,
        steps=steps,
        misfit=misfit,
        few=tuple(one for one, _ in few),
    )


def _play_finals(
    search: PlanSearch, plans: _Plans, limit: TimeLimit, took_s: float
) -> Iterator[tuple[SimulatedPlan, str]]:
    """Yield the search's best plans, simulated for all steps: the first one always, others if there is time."""
    for number, tried in enumerate(sorted(search.tried[1:], key=lambda each: each.step_ns)[:_FINALS]):
        if not number or not limit.is_over(kept_s=took_s):
            limit.words = "simulating the best plan found for all steps"
            yield plans.simulate(tried.plan)


def _simulate_yours(
    planned: Callable[[Path], Scenario], given: Path | None, steps: int, limit: TimeLimit
) -> tuple[list[tuple[SimulatedPlan, str]], str]:
    """Simulate the user's plan, if there is one; return it with its file's content, or why it does not fit."""
    if given is None:
        return [], ""
    limit.words = "simulating your plan"
    try:
        run = _whole(planned(given).with_run(steps=steps))
    except NoRoomError as error:
        return [], str(error)
    return [(SimulatedPlan(YOURS, run), given.read_text(encoding="utf-8"))], ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Plans:
    """A way to simulate plans as predictions with their files do."""

    free: Scenario
    planned: Callable[[Path], Scenario]
    steps: int
    module: str
    folder: Path

    def simulate(self, plan: Plan) -> tuple[SimulatedPlan, str]:
        """Simulate a plan; return it with the content of its file."""
        file, content = self.folder / "best.json", _json(self.free, plan, self.module)
        file.write_text(content, encoding="utf-8")
        return SimulatedPlan(BEST, _whole(self.planned(file).with_run(steps=self.steps))), content


def _move_tables(search: PlanSearch, start: Plan, plans: _Plans, most: int) -> Iterator[tuple[SimulatedPlan, str]]:
    """Yield the plan with its first move, with its first two, ..., while moves help, plans fit and there is time."""
    last = start
    for moves in range(1, most + 1):
        try:
            plan = search.move_tables(start, moves)
            if plan is None or plan.tables == last.tables:
                return
            yield plans.simulate(plan)
        except (NoRoomError, SearchStoppedError):
            return
        last = plan


def kept_ranks(free: Scenario) -> dict[str, object]:
    """Return the value with which scenarios with a plan simulate the same ranks as the one without, if it chose them.

    A plan with fewer sharding types needs less effort, for which every rank would be simulated.
    """
    return {"ranks": free.run.ranks} if free.run.chosen else {}


def _search(search: PlanSearch, start: Plan, limit: TimeLimit) -> str:
    """Search until no proposal is left, or the limit; return what stopped the search, in words, "" if nothing did."""
    try:
        search.run()
        search.go_on(start)
    except SearchStoppedError:
        return limit.reason
    return ""


def _is_over(search: PlanSearch, limit: TimeLimit, kept_s: float) -> bool:
    best_ns = min((tried.step_ns for tried in search.tried), default=0)
    limit.words = f"searching: {len(search.tried)} plans simulated, the best takes {text.duration(best_ns)}"
    return limit.is_over(kept_s=kept_s)


def _json(scenario: Scenario, plan: Plan, module: str) -> str:
    return plan_json(plan, scenario.sharding_host_ranks, scenario.cluster.host.gpu.kind, module)


def _whole(scenario: Scenario) -> Run:
    run = _simulate(scenario, lambda _: False)
    assert run is not None, "nothing stops it"
    return run


def _simulate(scenario: Scenario, stop: Callable[[object], bool]) -> Run | None:
    """Return the run of a scenario; None if it was stopped."""
    spans: list[Span] = []
    recording = play(scenario, build_simulation(scenario), spans.extend, stop=stop)
    recording.spans = sorted(spans, key=lambda span: (span.rank, span.stream, span.sequence))
    return Run.of(recording) if recording.info.complete else None

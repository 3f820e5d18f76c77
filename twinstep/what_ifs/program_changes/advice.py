"""Find the changes of a program that save most of a step, each simulated, for a prediction's first screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError
from scenarios.seam.program import Program
from scenarios.seam.trace import Advice, Span
from sim.rank.observed import Observed, as_it_is
from sim.run import RunProgress, play
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes.proposals import program_changes

# A change that saves a smaller share of a step is neither simulated nor shown.
LEAST_SHARE = 0.01
# The maximal number of changes that are simulated, the largest possible savings first.
MOST_PLAYED = 5
# A run with more spans is not simulated again for its first screen; `--what-if` simulates its changes.
MOST_SPANS = 30_000

Stop = Callable[[Callable[[], RunProgress]], bool]


@dataclass(slots=True)
class StepTimes:
    """A record of each step's time, from its first rank's begin to its last rank's end; `count` spans were seen."""

    count: int = 0
    _begin_ns: dict[int, int] = field(default_factory=dict)
    _end_ns: dict[int, int] = field(default_factory=dict)

    def add(self, spans: Sequence[Span]) -> None:
        """Add spans, of which those of steps count."""
        self.count += len(spans)
        for span in spans:
            if span.kind == "step":
                self._begin_ns[span.step] = min(span.start_ns, self._begin_ns.get(span.step, span.start_ns))
                self._end_ns[span.step] = max(span.end_ns, self._end_ns.get(span.step, span.end_ns))

    @property
    def ns(self) -> dict[int, int]:
        """The time of each step in ns, without a first step of several, in which hosts were not ahead yet."""
        found = {step: end_ns - self._begin_ns[step] for step, end_ns in self._end_ns.items()}
        return {step: ns for step, ns in found.items() if step > min(found)} or found


def advice(
    scenario: Scenario, program: Program, observed: Observed, times: StepTimes, stop: Stop
) -> tuple[Advice, ...]:
    """Return the savings of changes of a program, the greatest first, and the reasons of those that are barred.

    The program is simulated again with each change that may save `LEAST_SHARE` of a step; `observed` and `times` are of
    the simulation before. `stop` is as in `play`.
    """
    is_played = scenario.run.payload == "sizes" and times.count <= MOST_SPANS
    step_ns = median(times.ns.values()) if times.ns else 0
    if not is_played or not step_ns:
        return ()
    changes = [
        one for one in program_changes(scenario, program, observed) if one.saves_at_most_ns >= LEAST_SHARE * step_ns
    ]
    found = [*_simulate_changes(scenario, program, changes, times.ns, stop)]
    found.sort(key=lambda one: -one.saved_ns)
    barred = [Advice(change=one.name, made_by=one.barred, saved_ns=0.0, share=0.0) for one in changes if one.barred]
    return (*found, *barred)


def _simulate_changes(
    scenario: Scenario, program: Program, changes: Sequence[Counterfactual], steps_ns: Mapping[int, int], stop: Stop
) -> Iterator[Advice]:
    """Yield the saving of each change whose simulation completes, if it saves enough of `steps_ns`, by step."""
    step_ns = median(steps_ns.values())
    possible = [one for one in changes if one.replays and not one.barred]
    for one in possible[:MOST_PLAYED]:
        new = StepTimes()
        try:
            played, rewrite = one.program or program, one.rewrite or as_it_is
            recording = play(_apply_change(scenario, one), played, new.add, rewrite=rewrite, stop=stop)
        except ProgramError:  # the program does not run with this change
            continue
        if not recording.info.complete:
            return
        new_ns = new.ns
        both = {step: (old_ns, new_ns[step]) for step, old_ns in steps_ns.items() if one.repeats in (None, step)}
        saved_ns = median(old - new for old, new in both.values())
        share = saved_ns / step_ns
        if share >= LEAST_SHARE:
            yield Advice(change=one.name, made_by=one.made_by, saved_ns=float(saved_ns), share=share)


def _apply_change(scenario: Scenario, one: Counterfactual) -> Scenario:
    """Return the scenario with a change under which its program can be simulated again."""
    launching = replace(scenario.workload.launching, cuda_graphs=True)
    return scenario.with_workload(launching=launching) if one.values else scenario

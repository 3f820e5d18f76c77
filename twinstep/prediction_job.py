"""A prediction: a scenario simulated into a run folder, then further draws, and one change at a time.

Slow imports are inside functions, so that Ctrl-C is quiet while they load, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.collector import loading
from scenarios.progress_line import print_notes

if TYPE_CHECKING:
    from reports.analysis.repeats import Plays
    from reports.run import Run
    from scenarios.config.scenario import Scenario
    from scenarios.seam.program import Program
    from scenarios.seam.trace import ChangeRow, RunInfo, Span
    from scenarios.workloads.recording.recorder import ProgramRecorder
    from sim.draws import Digest
    from sim.rank.observed import Observed
    from sim.span_filter import Keeping
    from twinstep.progress import Phases, ProgressBar
    from twinstep.what_ifs.counterfactuals import Counterfactual
    from twinstep.what_ifs.what_if import WhatIf

# Changes take minutes, so their progress is also printed where stderr is no terminal, every so many seconds.
_PLAIN_S = 10.0


def keep_ids() -> AbstractContextManager[None]:
    """Keep ids once they are drawn, because the run, its draws and its changes use equal ids."""
    from scenarios.workloads.dlrm.ids.id_cache import DRAWN

    return DRAWN.up_to(1 << 28)


def plan_job(options: argparse.Namespace, scenario: Scenario, folder: Path, phases: Phases) -> PredictionJob:
    """Plan the scenario's tables, build its program and prepare it; imports such as torch take seconds."""
    with loading():
        from scenarios.workloads.recording.config import recorder_of
        from sim.rank.observed import Observed
        from sim.span_filter import Keeping, numbers_of_option
        from twinstep.plan_choice import build_planned
        from twinstep.progress import ProgressBar

    keeping = Keeping(
        numbers_of_option("--keep-ranks", options.keep_ranks, scenario.cluster.world_size),
        numbers_of_option("--keep-steps", options.keep_steps, scenario.run.steps),
    )
    quiet = options.json or options.quiet
    with ProgressBar(1, quiet=quiet, phases=phases) as bar:
        scenario, program = build_planned(scenario, bar.say, bar.does)
    if program.host_classes is not None:
        keeping = keeping.restrict(program.host_classes.ranks, f"--keep-ranks = {options.keep_ranks!r}")
    recorder = recorder_of(scenario) if options.record else None
    draws = options.draws
    if options.what_if and not draws:
        from twinstep.what_ifs.what_if import DRAWS  # loads Dask

        draws = DRAWS
    plain_s = _PLAIN_S if options.what_if else math.inf
    bar = ProgressBar(1 + draws, quiet=quiet, phases=phases, plain_s=plain_s)
    return PredictionJob(scenario, program, keeping, draws, folder, bar, Observed(), recorder)


def change_and_draw(job: PredictionJob, asked: PredictionRequest, digest: Digest | None) -> tuple[Run, Plays | None]:
    """Return the run in the job's folder with the requested changes, and the sample of the requested draws.

    `digest` is that of the run, if it has just been simulated.
    """
    from reports.analysis.repeats import Play, Plays
    from reports.analysis.step_breakdown import check_steps
    from reports.store import run_folder as store
    from sim.draws import digest_of

    run = store.load(job.folder)
    if not job.draws:
        return run, None
    check_steps(run)
    if digest is None:  # the folder holds the run already
        digest = digest_of(job.scenario, job.program, look=job.bar.show, observed=job.observed)
    runs = [run, *_draw(job, digest)]
    spread = Plays(list(map(Play.of, runs))) if asked.options.draws else None
    return _change(job, asked, runs) if asked.options.what_if else run, spread


@dataclasses.dataclass(frozen=True, slots=True)
class PredictionRequest:
    """A request of the command line: `given` replaces values of the scenario."""

    options: argparse.Namespace
    given: Mapping[str, object]
    of_script: Sequence[str] | None

    def load(self, values: Mapping[str, object]) -> Scenario:
        """Return the scenario, with these values added."""
        from twinstep.options import scenario_given

        return scenario_given(self.options, {**self.given, **values}, self.of_script)


@dataclasses.dataclass(frozen=True, slots=True)
class PredictionJob:
    """A scenario to simulate, with its program and how to record it."""

    scenario: Scenario
    program: Program
    keeping: Keeping
    draws: int
    folder: Path
    bar: ProgressBar
    observed: Observed
    recorder: ProgramRecorder | None


def record_run(job: PredictionJob) -> Digest:
    """Simulate and write the run folder, span by span, also where Ctrl-C ends it early."""
    from reports.writer import writing
    from scenarios.config.warnings import NotesAfter
    from sim.draws import Digest
    from sim.run import RunProgress, play
    from twinstep.progress import Interrupt
    from twinstep.what_ifs.program_changes.advice import StepTimes, advice

    notes, digest, times, keeping = NotesAfter(job.scenario), Digest(), StepTimes(), job.keeping
    ended, wrong = False, None
    with writing(job.folder, job.bar.say) as written:

        def take(spans: list[Span]) -> None:
            nonlocal ended
            ended = ended or any(span.kind == "step" for span in spans)
            notes.add(spans)
            times.add(spans)
            if job.draws:
                digest.add(spans)
            written.add(keeping.of(spans))

        def stop(where: Callable[[], RunProgress]) -> bool:
            job.bar.show(where)
            return interrupt.requested

        with Interrupt() as interrupt:
            job.program.does = job.bar.does
            job.bar.phases.begin("simulating")
            said = partial(job.bar.say, "writing the run folder")
            recording = play(
                job.scenario, job.program, take, observed=job.observed, recorder=job.recorder, stop=stop, ended=said
            )
        info = dataclasses.replace(recording.info, thinned=keeping.as_thinned)
        if not info.complete and not ended:
            raise KeyboardInterrupt(f"{job.folder}: not written: {info.error}")
        try:
            if info.complete and not interrupt.requested:
                job.bar.say("simulating changes of the program")
                with Interrupt() as interrupt:
                    known = advice(job.scenario, job.program, job.observed, times, stop)
                info = dataclasses.replace(info, advice=known)
        except Exception as error:  # the prediction is complete, even if its advice fails
            wrong = error
        written.finish(dataclasses.replace(recording, info=info))
    if wrong is not None:
        raise wrong
    _check_whole(job.folder, info, is_interrupted=interrupt.requested)
    print_notes(notes.sentences())
    return digest


def _check_whole(folder: Path, info: RunInfo, *, is_interrupted: bool) -> None:
    """Raise a KeyboardInterrupt, with what the folder has, if the run or the changes after it were interrupted."""
    if not info.complete:
        raise KeyboardInterrupt(f"{folder}: {info.error}; what had ended by then is in it")
    if is_interrupted:
        raise KeyboardInterrupt(f"{folder}: the run in it is whole; its changes were not all simulated")


def holds_run(folder: Path, job: PredictionJob) -> bool:
    """Return whether a folder has this release's complete prediction of a scenario, recorded if asked for."""
    from reports.errors import ReportError
    from reports.store import run_folder as store
    from scenarios.versions import versions
    from scenarios.workloads.recording.file import NAME

    try:
        info = store.load(folder).info
    except ReportError:
        return False
    is_recorded = job.recorder is None or (folder / NAME).is_file()
    is_same = info.scenario == json.loads(json.dumps(job.scenario.as_dict())) and info.versions == versions()
    return is_recorded and is_same and info.world == "sim" and info.complete


def _draw(job: PredictionJob, first: Digest) -> list[Run]:
    """Repeat the run with further draws."""
    from reports.run import Run
    from scenarios.interruption import Interrupted
    from sim.draws import further_draws

    runs: list[Run] = []
    job.bar.next_play()
    try:
        for recording in further_draws(job.scenario, job.program, job.draws, first, look=job.bar.show):
            runs.append(Run.of(recording))
            job.bar.next_play()
    except KeyboardInterrupt as interruption:
        interrupted = f"interrupted in draw {len(runs) + 1} of {job.draws}; the run itself is whole"
        raise Interrupted.of(interruption, f"{job.folder}: {interrupted}") from None
    return runs


def _change(job: PredictionJob, asked: PredictionRequest, runs: Sequence[Run]) -> Run:
    """Simulate the scenario with one change at a time; each result is written to the run's folder when it ends.

    `runs` are those of all draws, the first of them the folder's, which may have changes of an earlier command.

    Raises:
        KeyboardInterrupt: a signal; the folder has the changes that had ended.
    """
    from reports.sections.run.changes import NOT_TRIED
    from reports.store import run_folder as store
    from reports.study.measures import gain_of, measures_of, speeds_of
    from scenarios.planner.plan_file import PLAN_FILE
    from scenarios.workloads.script.command import tree_given
    from twinstep.studies.kept_plan import kept_plan, places, values_of
    from twinstep.what_ifs.what_if import WhatIf

    scenario = asked.load({})  # without the plan that was found
    is_found = scenario.workload.finds_plan  # if so, the run's folder has the plan
    what_if = WhatIf(
        load=asked.load,
        plan=values_of(job.folder / PLAN_FILE, scenario) if is_found else kept_plan(scenario, job.folder),
        places=places(job.program.plan),
        draws=len(runs) - 1,
        gain=partial(gain_of, speeds_of(runs)),
        program=job.program,
        replans=asked.options.replan,
    )
    tree = tree_given(asked.options.scenario, asked.given, scenario)
    rows = [row for row in store.changes_in(job.folder) if row.status != NOT_TRIED]
    rows = rows or [what_if.as_it_is(measures_of(runs[0]))]
    _try_changes(job, asked, what_if, what_if.changes(scenario, tree, job.observed), rows)
    return store.load(job.folder)


def _try_changes(
    job: PredictionJob,
    asked: PredictionRequest,
    what_if: WhatIf,
    changes: Sequence[Counterfactual],
    rows: list[ChangeRow],
) -> None:
    """Simulate the changes that have no row until time is over; add their rows, and those of changes not tried.

    Raises:
        KeyboardInterrupt: a signal; the rows have been added.
    """
    from reports.store import run_folder as store
    from twinstep.what_ifs.what_if import SECONDS

    known, seconds = {row.change for row in rows}, asked.options.seconds or SECONDS
    ends_s, why = time.monotonic() + seconds, f"stopped after {seconds:g} s, --seconds"
    left = [one for one in changes if one.name not in known]
    try:
        while left and (left_s := ends_s - time.monotonic()) > 0:
            done = len(changes) - len(left)
            job.bar.say(f"{left[0].name} ({done + 1} of {len(changes)})", done / len(changes))
            row = what_if.play(left[0], left_s)
            if row is not None and row.status == "timed out":
                break
            left.pop(0)
            rows += [] if row is None else [row]
            store.add_changes(job.folder, rows)
    except KeyboardInterrupt:
        why = "interrupted"
        raise
    finally:
        store.add_changes(job.folder, [*rows, *what_if.not_tried(left, why)])

"""The command `predict`: load a scenario file, simulate it, store the run and show it.

Slow imports are inside functions, so that Ctrl-C is quiet while they load, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.collector import loading
from scenarios.interruption import code_of

if TYPE_CHECKING:
    from reports.analysis.repeats import Plays
    from reports.run import Run
    from scenarios.config.scenario import Scenario
    from scenarios.seam.program import Program
    from scenarios.seam.trace import RunInfo, Span
    from scenarios.workloads.recording.recorder import ProgramRecorder
    from sim.draws import Digest
    from sim.rank.observed import Observed
    from sim.span_filter import Keeping
    from twinstep.phases import Phases
    from twinstep.progress import ProgressBar


def main(arguments: Sequence[str] | None = None, prog: str = "python -m sim") -> int:
    """Run the command and return its exit code.

    Exit codes: 0 done, 1 the program failed, 2 the user's mistake, 128 + n for signal n.
    """
    try:
        from scenarios.workloads.script.command import parse, split_at_script

        words = sys.argv[1:] if arguments is None else arguments
        given, of_script = split_at_script(words)
        command = words[0] if words[:1] and words[0] in _COMMANDS else ""
        options = None if command else parse(_parser(prog), given)
        from reports.errors import NoStepError, ReportError
        from scenarios.seam.errors import ProgramError, show_notes

        show_notes()
        try:
            return _study(command, words[1:], prog) if options is None else _predict(options, of_script)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError | NoStepError) else 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption)


_COMMANDS = ("sweep", "search", "curves")  # a scenario with such a name is written ./sweep


def _study(command: str, words: Sequence[str], prog: str) -> int:
    prog = prog if prog.endswith(f" {command}") else f"{prog} {command}"
    if command == "curves":
        from twinstep.studies.curves.cli import curves_command

        return curves_command(words, prog)
    from twinstep.studies.cli import sweep_command

    return sweep_command(words, prog, search=command == "search")


def _parser(prog: str) -> argparse.ArgumentParser:
    from scenarios.workloads.script.command import add_options
    from twinstep.options import OVERRIDES, add_full, add_outputs, add_overrides

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict how long the steps of a scenario or script take. '%(prog)s sweep STUDY' predicts all"
        " variations that a study describes. '%(prog)s search STUDY' searches a study for its best variations."
        " '%(prog)s curves SCENARIO' shows how a scenario scales.",
    )
    parser.add_argument(
        "scenario",
        type=Path,
        nargs="?",
        help="scenario file (docs/scenario.md), name of a ready scenario, or training script (.py) followed by its own"
        " arguments (docs/scripts.md)",
    )
    add_outputs(
        parser,
        "new run folder (default: runs/NAME-sim-TIME)",
        json="print all tables as JSON",
        quiet="print only the run folder's path",
    )
    add_full(parser)
    spread = "also simulate N randomized runs and report the spread of step times (default: 0)"
    parser.add_argument("--draws", type=int, default=0, metavar="N", help=spread)
    gains = "also simulate changes of hardware and program, one at a time, and report what each gains"
    parser.add_argument("--what-if", action="store_true", help=gains)
    parser.add_argument(
        "--kernels-csv", type=Path, metavar="FILE.csv", help="new file for the time of each operator on a GPU"
    )
    parser.add_argument("--record", action="store_true", help="also keep what ranks do, to simulate it elsewhere")
    keep = parser.add_argument_group(
        "smaller run folders of large runs", "RANKS and STEPS are all (the default), none, every:64, or 0,8,16-23"
    )
    keep.add_argument("--keep-ranks", metavar="RANKS", default="all", help="ranks whose spans are written")
    keep.add_argument("--keep-steps", metavar="STEPS", default="all", help="steps whose spans are written")
    overrides = parser.add_argument_group("overrides (default: the scenario's values)")
    add_overrides(overrides, OVERRIDES)
    add_options(parser, plays=True)
    return parser


def _predict(options: argparse.Namespace, of_script: Sequence[str] | None) -> int:
    with loading():
        from scenarios.config.load import report_mistakes
        from scenarios.config.warnings import notes, print_notes
        from scenarios.seam.errors import ScenarioError
        from scenarios.workloads.script.config import Script
        from scenarios.workloads.script.forking import start_loading
        from twinstep.options import OVERRIDES, impossible, overrides_of
        from twinstep.phases import Phases

    phases = Phases("loading")
    with report_mistakes():
        given = overrides_of(options, OVERRIDES)
        if wrong := list(impossible(options)):
            raise ScenarioError(wrong)
        asked = _Asked(options, given, of_script)
        scenario = asked.load({})
        if isinstance(scenario.options, Script) and scenario.options.recording is None:
            start_loading(scenario, scenario.options)  # concurrently with this process's own imports
        with loading():
            from reports.store.drafts import changing
            from reports.terminal.present import check_free, output, present, write_kernels

        folder = _folder(options, scenario)
        job = _planned(options, scenario, folder, phases)
    from scenarios.workloads.build import effort_of

    goes_on = options.what_if and _holds(folder, job.scenario)
    if not goes_on:
        check_free(folder)
    print_notes(notes(job.scenario, job.program.host_classes, effort_of(job.scenario, job.program)))
    with job.bar, _ids_kept():
        digest = None if goes_on else _record(job)
        with changing(folder) if options.what_if else nullcontext():
            run, spread = _repeat(job, asked, digest)
    if options.kernels_csv is not None:
        write_kernels(run, options.kernels_csv)
    phases.begin("tables")
    with output():
        present(folder, options, run=run, spread=spread)
        if options.kernels_csv is not None and not (options.json or options.quiet):
            print(f"kernels: {options.kernels_csv}")
        if isinstance(job.scenario.options, Script) and not (options.json or options.quiet) and phases.sentence():
            print(phases.sentence())
    return 0


def _folder(options: argparse.Namespace, scenario: Scenario) -> Path:
    """Return the run folder; check it, and the file for kernels, before long work rather than after it.

    Raises:
        ReportError: there is something already, which is not what the command would continue.
    """
    from reports.store import replace
    from reports.store import run_folder as store
    from reports.store.drafts import changing
    from reports.terminal.present import check_free

    folder: Path = options.out or store.fresh_folder("runs", f"{scenario.name}-sim")
    if options.what_if and folder.exists():
        with changing(folder):
            pass
    else:
        check_free(folder)
    if options.kernels_csv is not None:
        replace.check_free(options.kernels_csv)
    return folder


def _ids_kept() -> AbstractContextManager[None]:
    """Keep ids once they are drawn, because the run, its draws and its changes use equal ids."""
    from scenarios.workloads.dlrm.ids.id_cache import DRAWN

    return DRAWN.up_to(1 << 28)


def _planned(options: argparse.Namespace, scenario: Scenario, folder: Path, phases: Phases) -> _Job:
    """Plan the scenario's tables, build its program and prepare it; imports such as torch take seconds."""
    with loading():
        from scenarios.workloads.recording.config import recorder_of
        from sim.rank.observed import Observed
        from sim.span_filter import Keeping, chosen_by
        from twinstep.plan_choice import build_planned
        from twinstep.progress import ProgressBar

    keeping = Keeping(
        chosen_by("--keep-ranks", options.keep_ranks, scenario.cluster.world_size),
        chosen_by("--keep-steps", options.keep_steps, scenario.run.steps),
    )
    quiet = options.json or options.quiet
    with ProgressBar(1, quiet=quiet, phases=phases) as bar:
        scenario, program = build_planned(scenario, bar.say, bar.does)
    if program.host_classes is not None:
        keeping = keeping.simulated(program.host_classes.ranks, f"--keep-ranks = {options.keep_ranks!r}")
    recorder = recorder_of(scenario) if options.record else None
    draws = options.draws
    if options.what_if and not draws:
        from twinstep.what_if.what_if import DRAWS  # loads Dask

        draws = DRAWS
    bar = ProgressBar(1 + draws, quiet=quiet, phases=phases)
    return _Job(scenario, program, keeping, draws, folder, bar, Observed(), recorder)


def _repeat(job: _Job, asked: _Asked, digest: Digest | None) -> tuple[Run, Plays | None]:
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
class _Asked:
    """A request of the command line: `given` replaces values of the scenario."""

    options: argparse.Namespace
    given: Mapping[str, object]
    of_script: Sequence[str] | None

    def load(self, values: Mapping[str, object]) -> Scenario:
        """Return the scenario, with these values added."""
        from twinstep.options import scenario_given

        return scenario_given(self.options, {**self.given, **values}, self.of_script)


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """A scenario to simulate, with its program and how to record it."""

    scenario: Scenario
    program: Program
    keeping: Keeping
    draws: int
    folder: Path
    bar: ProgressBar
    observed: Observed
    recorder: ProgramRecorder | None = None


def _record(job: _Job) -> Digest:
    """Simulate and write the run folder, span by span, also where Ctrl-C ends it early."""
    from reports.writer import writing
    from scenarios.config.warnings import NotesAfter, print_notes
    from sim.draws import Digest
    from sim.run import RunProgress, play
    from twinstep.progress import Interrupt
    from twinstep.what_if.program_changes.advice import StepTimes, advice

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
        info = dataclasses.replace(recording.info, thinned=keeping.thinned)
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


def _holds(folder: Path, scenario: Scenario) -> bool:
    """Return whether a folder has this release's complete prediction of this scenario, so that changes can be added."""
    from reports.errors import ReportError
    from reports.store import run_folder as store
    from scenarios.versions import versions

    try:
        info = store.load(folder).info
    except ReportError:
        return False
    is_same = info.scenario == json.loads(json.dumps(scenario.as_dict())) and info.versions == versions()
    return is_same and info.world == "sim" and info.complete


def _draw(job: _Job, first: Digest) -> list[Run]:
    """Repeat the run with further draws."""
    from reports.run import Run
    from sim.draws import further_draws

    runs: list[Run] = []
    job.bar.next_play()
    try:
        for recording in further_draws(job.scenario, job.program, job.draws, first, look=job.bar.show):
            runs.append(Run.of(recording))
            job.bar.next_play()
    except KeyboardInterrupt:
        interrupted = f"interrupted in draw {len(runs) + 1} of {job.draws}; the run itself is whole"
        raise KeyboardInterrupt(f"{job.folder}: {interrupted}") from None
    return runs


def _change(job: _Job, asked: _Asked, runs: Sequence[Run]) -> Run:
    """Simulate the scenario with one change at a time; each result is written to the run's folder when it ends.

    `runs` are those of all draws, the first of them the folder's, which may have changes of an earlier command.
    """
    from reports.store import run_folder as store
    from reports.study.measures import gain_of, measures_of, speeds_of
    from scenarios.planner.plan_file import PLAN_FILE
    from scenarios.workloads.script.command import tree_given
    from twinstep.studies.kept_plan import kept_plan, places, values_of
    from twinstep.what_if.what_if import WhatIf

    scenario = asked.load({})  # without the plan that was found
    is_found = scenario.workload.finds_plan  # if so, the run's folder has the plan
    what_if = WhatIf(
        load=asked.load,
        plan=values_of(job.folder / PLAN_FILE, scenario) if is_found else kept_plan(scenario, job.folder),
        places=places(job.program.plan),
        draws=len(runs) - 1,
        gain=partial(gain_of, speeds_of(runs)),
        program=job.program,
    )
    tree = tree_given(asked.options.scenario, asked.given, scenario)
    changes = what_if.changes(scenario, tree, job.observed)
    rows = store.changes_in(job.folder) or [what_if.as_it_is(measures_of(runs[0]))]
    known, playing = {row.change for row in rows}, "the first change"
    try:
        for number, one in enumerate(changes, 1):
            playing = f"'{one.name}'"
            job.bar.say(f"{one.name} ({number} of {len(changes)})")
            if one.name not in known and (row := what_if.play(one)) is not None:
                rows.append(row)
                store.add_changes(job.folder, rows)
    except KeyboardInterrupt:
        kept = f"interrupted at {playing}, {len(rows) - 1} of {len(changes)} changes are in it"
        raise KeyboardInterrupt(f"{job.folder}: {kept}; the command with --out {job.folder} goes on") from None
    store.add_changes(job.folder, rows)
    return store.load(job.folder)

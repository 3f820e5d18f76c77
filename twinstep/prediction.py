"""The command `predict`: load a scenario file, simulate it, store the run and show it.

Slow imports are inside functions, so that Ctrl-C is quiet while they load, too.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.collector import loading
from scenarios.interruption import NOTHING, Interrupted, code_of

if TYPE_CHECKING:
    from reports.run import Run
    from scenarios.config.scenario import Scenario
    from twinstep.prediction_job import PredictionJob
    from twinstep.progress import Phases


def main(arguments: Sequence[str] | None = None, prog: str = "python -m sim") -> int:
    """Run the command and return its exit code.

    Exit codes: 0 done, 1 the program failed, 2 the user's mistake, 128 + n for signal n.
    """
    try:
        from scenarios.workloads.script.command import parse

        words = sys.argv[1:] if arguments is None else arguments
        command = words[0] if words[:1] and words[0] in _COMMANDS else ""
        options, of_script = (None, None) if command else parse(_parser(prog), words)
        from reports.errors import NoStepError, ReportError
        from scenarios.seam.errors import ProgramError, show_notes

        show_notes()
        try:
            return _study(command, words[1:], prog) if options is None else _predict(options, of_script)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError | NoStepError) else 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption, NOTHING)


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
    from twinstep.jobs.options import add_job
    from twinstep.options import OVERRIDES, add_full, add_outputs, add_overrides, add_what_if

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Predict how long the steps of a scenario or script take. 'twinstep sweep STUDY' predicts all"
        " variations that a study describes. 'twinstep search STUDY' searches a study for its best variations."
        " 'twinstep curves SCENARIO' shows how a scenario scales.",
    )
    parser.add_argument(
        "scenario",
        type=Path,
        nargs="?",
        help="scenario file (twinstep docs scenario), name of a ready scenario, or training script (.py) followed by"
        " its own arguments (twinstep docs scripts)",
    )
    out, quiet = "new run folder (default: runs/NAME-sim-TIME)", "print only the run folder's path"
    add_outputs(parser, out, json="print all tables as JSON", quiet=quiet)
    add_full(parser)
    spread = "also simulate N randomized runs and report the spread of step times (default: 0)"
    parser.add_argument("--draws", type=int, default=0, metavar="N", help=spread)
    add_what_if(parser)
    parser.add_argument(
        "--kernels-csv", type=Path, metavar="FILE.csv", help="new file for the time of each operator on a GPU"
    )
    parser.add_argument(
        "--record", action="store_true", help="also record all calls of the ranks, to simulate them elsewhere"
    )
    add_job(parser)
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
        from scenarios.config.warnings import notes
        from scenarios.progress_line import print_notes
        from scenarios.seam.errors import ScenarioError
        from scenarios.workloads.script.config import Script
        from scenarios.workloads.script.forking import start_loading
        from twinstep import prediction_job as jobs
        from twinstep.jobs.command import predict_job
        from twinstep.jobs.options import job_asked
        from twinstep.options import OVERRIDES, check_what_if, impossible, overrides_of
        from twinstep.progress import Phases

    phases = Phases("loading")
    with report_mistakes():
        given = overrides_of(options, OVERRIDES)
        if wrong := list(impossible(options)):
            raise ScenarioError(wrong)
        asked = jobs.PredictionRequest(options, given, of_script)
        scenario = asked.load({})
        check_what_if(options, scenario)
        if (days := job_asked(options, scenario, asked.load)) is not None:
            return predict_job(options, scenario, days, phases)
        if isinstance(scenario.options, Script) and scenario.options.recording is None:
            start_loading(scenario, scenario.options)  # concurrently with this process's own imports
        with loading():
            from reports.terminal.present import check_free, output, present, write_kernels

        folder = _folder(options, scenario)
        job = jobs.plan_job(options, scenario, folder, phases)
    from scenarios.workloads.build import effort_of

    goes_on = options.what_if and jobs.holds_run(folder, job)
    if not goes_on:
        check_free(folder)
    print_notes(notes(job.scenario, job.program.host_classes, effort_of(job.scenario, job.program)))
    with job.bar, jobs.keep_ids():
        digest = None if goes_on else jobs.record_run(job)
        with _own_changes(job, options) if options.what_if else nullcontext():
            run, spread = jobs.change_and_draw(job, asked, digest)
    if options.kernels_csv is not None:
        write_kernels(run, options.kernels_csv)
    phases.begin("tables")
    with output():
        present(folder, options, run=run, spread=spread)
        if not (options.json or options.quiet):
            _print_rest(options, job, phases)
    return 0


def _print_rest(options: argparse.Namespace, job: PredictionJob, phases: Phases) -> None:
    from scenarios.workloads.script.config import Script

    if options.kernels_csv is not None:
        print(f"kernels: {options.kernels_csv}")
    if isinstance(job.scenario.options, Script) and phases.sentence():
        print(phases.sentence())


@contextmanager
def _own_changes(job: PredictionJob, options: argparse.Namespace) -> Iterator[None]:
    """Own the run folder while changes are added to it, and print what it has if a signal ends that.

    Raises:
        ReportError: another process adds to it.
    """
    from reports.store.drafts import changing
    from reports.terminal.present import output, present

    try:
        with changing(job.folder):
            yield
    except KeyboardInterrupt as interruption:
        job.bar.end()
        with output():
            present(job.folder, options)
        said = str(interruption) or f"{job.folder}: interrupted"
        raise Interrupted.of(interruption, f"{said}; the command with --out {job.folder} goes on") from None


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


def changed_run(path: str | os.PathLike[str], overrides: Mapping[str, object], *, replan: bool, seconds: float) -> Run:
    """Predict a scenario with one change at a time, as `--what-if` does; the run, with its changes, is in memory.

    Raises:
        ScenarioError: mistakes in the scenario or the overrides.
        ProgramError: ranks whose calls do not fit together.
    """
    from scenarios.owned_folder import scratch_folder
    from twinstep import prediction_job as jobs
    from twinstep.options import check_what_if
    from twinstep.progress import Phases

    given = dict(overrides)
    with scratch_folder() as scratch:
        words = [os.fspath(path), "--what-if", "--quiet", "--out", str(scratch / "run")]
        options = _parser("twinstep.what_if").parse_args(words)
        options.replan, options.seconds = replan, seconds
        if words[0].endswith(".py"):
            options.hosts, options.gpus_per_host = (given.pop(name, None) for name in ("hosts", "gpus_per_host"))
        asked = jobs.PredictionRequest(options, given, None)
        scenario = asked.load({})
        check_what_if(options, scenario)
        job = jobs.plan_job(options, scenario, options.out, Phases("loading"))
        with job.bar, jobs.keep_ids():
            run, _ = jobs.change_and_draw(job, asked, jobs.record_run(job))
        # The plan that changes keep is a file of the folder, which goes.
        plan = rf" ?--set sharding\.plan={re.escape(str(scratch))}\S*"
        run.what_if["options"] = run.what_if["options"].str.replace(plan, "", regex=True)
        return run.in_memory()

"""`python -m real job`: runs a job on real ranks that are killed, and compares lost time with its prediction.

Slow imports are inside functions, so that Ctrl-C is quiet while they load, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.config.scenario import Scenario, TrainingJob

_OVERRIDES = ("steps", "seed", "profile", "timeout")


def job(arguments: Sequence[str], prog: str = "python -m real job") -> int:
    """Run a job; return 0, 1 if it ended early, 2 for a mistake, or 128 + n for signal n."""
    from real.launch.launcher import RunEnded
    from reports.errors import ReportError
    from scenarios.seam.errors import ProgramError, ScenarioError

    options = _parser(prog).parse_args(arguments)
    try:
        return _calibrate(options) if options.calibrate else _compare(options)
    except (ScenarioError, ProgramError, ReportError) as error:
        print(error, file=sys.stderr)
        return 2
    except RunEnded as ended:
        print(ended, file=sys.stderr)
        return ended.code


def _compare(options: argparse.Namespace) -> int:
    from reports.job.folder import write_content
    from reports.job.real_job import REAL_JOB, REAL_JOB_SUMMARY, content
    from reports.store import run_folder as store
    from reports.terminal.present import check_free
    from scenarios.config.scenario.job import Recovery
    from scenarios.progress_line import print_notes
    from twinstep.jobs.command import show_job

    scenario, given = _load(options)
    folder: Path = options.out or store.fresh_folder(Path("runs"), f"{scenario.name}-real-job")
    check_free(folder)
    if given.recovery == Recovery():
        file = f"{scenario.path}: job.recovery: not set; predicted with the defaults of a cluster's scheduler, not with"
        print_notes([f"{file} this machine's times, which --calibrate FILE.toml measures for `include`"])
    from twinstep.real_jobs.measured import run_and_predict

    found = run_and_predict(scenario, given, options.kill, folder, options.emulate, options.max_restarts)
    write_content(content(found), folder)
    show_job(options, (REAL_JOB_SUMMARY, REAL_JOB), found, folder, "")
    return 0


def _load(options: argparse.Namespace) -> tuple[Scenario, TrainingJob]:
    """Return the scenario and its job.

    Raises:
        ScenarioError: it has none, or one that real ranks cannot do.
    """
    from scenarios.config.interconnect import LIBRARIES, serving
    from scenarios.config.load import load
    from scenarios.seam.errors import ScenarioError
    from twinstep.options import overrides_of

    scenario = load(options.scenario, overrides_of(options, _OVERRIDES))
    given = scenario.job
    if given is None:
        raise ScenarioError(f"{scenario.path}: job: missing; expected a table [job], whose checkpoints are written")
    if given.checkpoint.kind != "blocking":
        raise ScenarioError(
            f"{scenario.path}: job.checkpoint.kind = '{given.checkpoint.kind}': expected 'blocking' on real ranks"
        )
    if given.checkpoint.full_every > 1:
        raise ScenarioError(
            f"{scenario.path}: job.checkpoint.full_every = {given.checkpoint.full_every}: expected 1 on real ranks"
        )
    if LIBRARIES[scenario.run.library].device != "cpu":
        raise ScenarioError(
            f"{scenario.path}: run.library = '{scenario.run.library}': expected {serving('cpu')} for jobs on real ranks"
        )
    return scenario, given


def _calibrate(options: argparse.Namespace) -> int:
    from twinstep.real_jobs.calibration import calibrate

    scenario, given = _load(options)
    print(calibrate(scenario, given, Path(options.calibrate), options.emulate))
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    from twinstep.options import add_emulate, add_full, add_outputs, add_overrides

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run a scenario's steps on real ranks under torch's elastic agent, with checkpoints and killed"
        " ranks, and compare the time lost with its prediction.",
    )
    parser.add_argument("scenario", type=Path, help="scenario with a table [job]: a file, or the name of a ready one")
    about = (
        "kill a rank or host at a time after the first step began, or when a step begins: '12s:rank3', 'step40:host1';"
        " may be repeated (default: kills drawn from [job.failures])"
    )
    parser.add_argument("--kill", action="append", default=[], metavar="WHEN:WHOM", help=about)
    about = "how often a host's ranks may be restarted (default: number of kills plus one)"
    parser.add_argument("--max-restarts", type=int, metavar="N", help=about)
    about = "only measure restarts and checkpoints with this program, and write them to FILE, for scenarios to include"
    parser.add_argument("--calibrate", metavar="FILE.toml", help=about)
    add_outputs(
        parser,
        "new job folder (default: runs/NAME-real-job-TIME)",
        json="print the comparison as JSON",
        quiet="print only the job folder's path",
    )
    add_full(parser)
    add_overrides(parser.add_argument_group("overrides (default: the scenario's values)"), _OVERRIDES)
    add_emulate(parser, "hosts as the scenario describes, for this run only")
    return parser

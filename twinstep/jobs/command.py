"""The command of a job of days: predicts its step, plays the job, writes its folder and shows it.

Slow imports are inside functions, so that Ctrl-C is quiet while they load, too.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.collector import loading

if TYPE_CHECKING:
    from reports.sections.model import Report
    from scenarios.config.scenario import Scenario, TrainingJob
    from twinstep.jobs.model_of import JobSteps
    from twinstep.progress import Phases


def predict_job(options: argparse.Namespace, scenario: Scenario, job: TrainingJob, phases: Phases) -> int:
    """Predict the job, write its folder, whole or not at all, and show it; return the exit code.

    Raises:
        Interrupted: a signal came; nothing was written.
        ScenarioError: the scenario lacks what its job needs.
        ProgramError: the step's program failed.
        ReportError: the folder cannot be written.
    """
    with loading():
        from reports.job import folder as job_folder
        from reports.sections.job.report import JOB, JOB_SUMMARY
        from reports.sections.run.summary import next_line
        from reports.store import run_folder as store
        from reports.store.drafts import whole_folder
        from reports.terminal.present import check_free
        from scenarios.interruption import NOTHING, Interrupted
        from scenarios.progress_line import ProgressLine
        from twinstep.jobs.job_prediction import play_job

    folder: Path = options.out or store.fresh_folder("runs", f"{scenario.name}-job")
    check_free(folder)
    job = dataclasses.replace(job, draws=options.draws or job.draws)
    try:
        with whole_folder(folder) as partial:
            steps = _steps(options, scenario, job, partial / job_folder.STEP, phases)
            phases.begin("simulating jobs")
            with ProgressLine(quiet=options.json or options.quiet, first_s=1.0) as line:
                found = play_job(scenario, job, steps, line.show)
            job_folder.write(found, partial)
    except KeyboardInterrupt as interruption:
        # The step's own sentence says what its run folder has, which is removed with the job's.
        raise Interrupted.of(interruption, NOTHING) from None
    show_job(options, (JOB_SUMMARY, JOB), found, folder, f"{next_line(str(folder))}\n")
    return 0


def show_job(options: argparse.Namespace, reports: tuple[Report, Report], found: Any, folder: Path, then: str) -> None:
    """Print a job as --quiet, --full or --json request: its folder, or its summary or whole report, and `then`."""
    from reports.terminal.present import output, print_report

    with output():
        if options.quiet:
            print(folder)
            return
        print_report(reports[options.full or options.json], found, as_json=options.json)
        if not options.json:
            print(f"{then}job folder: {folder}")


def _steps(options: argparse.Namespace, scenario: Scenario, job: TrainingJob, folder: Path, phases: Phases) -> JobSteps:
    """Return the job's steps: the given one, or the predicted one, whose run is written into `folder`."""
    from reports.store import run_folder as store
    from twinstep.jobs.checkpoint import JobCheckpoints
    from twinstep.jobs.job_steps import given_steps, predicted_steps
    from twinstep.prediction_job import keep_ids, plan_job, record_run

    if job.step_ns is not None:
        return given_steps(scenario, job)
    draws, options.draws = options.draws, 0  # those of the job
    planned = plan_job(options, scenario, folder, phases)
    options.draws = draws
    # Says what is missing before the step is simulated.
    JobCheckpoints(scenario=planned.scenario, given=job.checkpoint, program=planned.program).writing(1)
    with planned.bar, keep_ids():
        record_run(planned)
    return predicted_steps(planned.scenario, planned.program, job, store.load(folder))

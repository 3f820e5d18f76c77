"""The commands of `python -m reports` that read runs, and make runs and tables of what was measured."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from reports import report, trace_table
from reports.compare import comparison
from reports.errors import ReportError
from reports.job import folder as job_folder
from reports.job.folder import JobRun
from reports.job.load import load as load_job
from reports.job.real_job import REAL_JOB, REAL_JOB_SUMMARY, RealJob
from reports.kineto import compute_times, recording
from reports.sections.comparison import COMPARISON, CompareView
from reports.sections.job.report import JOB, JOB_SUMMARY
from reports.sections.kineto import COMPUTATIONS, KERNELS, KernelsView
from reports.sections.model import Report
from reports.sections.run.subject import RunView
from reports.sections.side_by_side import BESIDE, BesideView
from reports.sections.study import STUDY, StudyView
from reports.sections.validation import VALIDATION, ValidationView
from reports.side_by_side import frames as side_by_side
from reports.store import replace
from reports.store import run_folder as store
from reports.store.drafts import whole_folder
from reports.study.frame import study_frame
from reports.study.rows import about_of, is_study
from reports.terminal import text
from reports.terminal.present import Tell, check_free, print_report, print_run, progress_line, write_kernels
from reports.validation import folder as validation_folder
from reports.writer import write
from scenarios.progress_line import print_notes
from twinstep.reporting import chakra as execution_traces


def report_runs(options: Namespace) -> None:
    """Write tables and a page of one run, of several runs compared, or of a study."""
    if studies := [folder for folder in options.runs if is_study(folder)]:
        _study(studies[0], options)
        return
    if jobs := [folder for folder in options.runs if job_folder.is_job(folder)]:
        _job(jobs[0], options)
        return
    if len(options.runs) == 1:
        run, folder = store.load(options.runs[0]), report.folder_of(options.runs[0], options.out)
        view = RunView.of(run, options.step)
        write_page = partial(report.write, run, folder, step=options.step)
        _present(options, lambda: print_run(view, options, str(options.runs[0])), lambda tell: write_page(tell=tell))
        return
    if options.step is not None:
        raise ReportError(f"--step {options.step}: expected with one run; several may not have that step")
    runs = zip(side_by_side.names_of(options.runs), map(store.load, options.runs), strict=True)
    found = side_by_side.side_by_side(list(runs))
    write_page = partial(report.write_side_by_side, found, options.runs, options.out)
    _present(options, _printing(options, BESIDE, BesideView(found)), write_page)


def _study(folder: Path, options: Namespace) -> None:
    if len(options.runs) > 1:
        raise ReportError(f"{folder}: a study; expected no run and no other study beside it")
    if options.step is not None:
        raise ReportError(f"--step {options.step}: expected with a run; a study has no steps")
    view = StudyView(study_frame(folder), about_of(folder), str(folder))
    _present(options, _printing(options, STUDY, view), lambda _: report.write_study(folder, options.out))


def _job(folder: Path, options: Namespace) -> None:
    if len(options.runs) > 1:
        raise ReportError(f"{folder}: a job of days; expected no run and no other job beside it")
    found, shown = _load_job(folder, options)
    _present(options, _printing(options, shown, found), lambda _: report.write_job(found, folder, options.out))


def _load_job(folder: Path, options: Namespace) -> tuple[JobRun | RealJob, Report]:
    """Return a job and what is printed of it."""
    if options.step is not None:
        raise ReportError(f"--step {options.step}: expected with a run; that of a job is {folder / job_folder.STEP}")
    is_full = options.full or options.json
    job = load_job(folder)
    if isinstance(job, RealJob):
        return job, REAL_JOB if is_full else REAL_JOB_SUMMARY
    return job, JOB if is_full else JOB_SUMMARY


def show(options: Namespace) -> None:
    """Print the summary of one run, or of a job of days."""
    if job_folder.is_job(options.run):
        found, shown = _load_job(options.run, options)
        _printing(options, shown, found)()
        return
    print_run(RunView.of(store.load(options.run), options.step), options, str(options.run))


def compare(options: Namespace) -> None:
    """Compare predictions with measurements: two runs, or all of a validation."""
    if options.real is None:
        _validation(options)
        return
    first, second = store.load(options.sim), store.load(options.real)
    found = comparison.compare(first, second, any_worlds=options.any)
    folders = [options.sim, options.real] if found.predicted is first else [options.real, options.sim]
    write_page = partial(report.write_comparison, found, folders, options.out)
    _present(options, _printing(options, COMPARISON, CompareView(found)), write_page)


def _validation(options: Namespace) -> None:
    if options.out is not None:
        raise ReportError(f"--out {options.out}: expected with runs; a validation's page lies beside its runs")
    found = validation_folder.load(options.sim)
    _present(options, _printing(options, VALIDATION, ValidationView(found)), partial(report.write_validation, found))


def _printing(options: Namespace, sections: Report, view: Any) -> Callable[[], None]:
    return partial(print_report, sections, view, as_json=options.json)


def _present(options: Namespace, show: Callable[[], None], write_page: Callable[[Tell], Path]) -> None:
    """Show all as JSON; or write the page, then show the tables and the page's path."""
    if options.json:
        show()
        return
    with progress_line() as tell:
        page = write_page(tell)
    show()
    print(f"report: {page}")


def export(options: Namespace) -> None:
    """Write every frame of a run as CSV, or its kernels alone."""
    if options.kernels_csv is not None:
        replace.check_free(options.kernels_csv)
        write_kernels(store.load(options.run), options.kernels_csv)
        return
    derived = store.load(options.run).derived()
    with whole_folder(options.csv) as partial:
        for name, frame in derived.items():
            frame.to_csv(partial / f"{name}.csv", index=False)


def chakra(options: Namespace) -> None:
    """Write a step of a run as execution traces, one file per rank."""
    recorded = execution_traces.recording_of(options.run)
    step = execution_traces.write_traces(store.load(options.run), options.out, options.step, recorded)
    print(f"step {step} as execution traces: {options.out}")


def kineto(options: Namespace) -> None:
    """Write a run folder of torch.profiler's traces, and a table of their operators."""
    check_free(options.out)
    trace_table.check_file(options.table)
    found, table = _read_traces(options)
    write(found.recording, options.out)
    print_notes(found.notes)
    print_report(KERNELS, KernelsView(found, str(options.out), table), as_json=options.json)
    if not options.json:
        print(f"run folder: {options.out}")
        _say_table(table)


def _read_traces(options: Namespace) -> tuple[recording.Profile, dict[str, Any] | None]:
    """Return the traces' recording and a summary of their table; the traces themselves are released."""
    traces = recording.read_traces(options.traces)
    table = None if options.table is None else _write_table(trace_table.rows_of_traces(traces), options.table)
    return recording.profile_of(traces, text.printable(options.out.resolve().name)), table


def _write_table(table: trace_table.Table, file: Path) -> dict[str, Any]:
    rows = trace_table.write_rows(file, table)
    print_notes(table[-1])
    return {"file": str(file), "rows": rows}


def _say_table(table: dict[str, Any] | None) -> None:
    if table is not None:
        print(f"table: {table['file']}, {text.count_words(table['rows'], 'row')}")


def recover(options: Namespace) -> None:
    """Write the run of a launcher that was killed."""
    from real.supervise import recovery
    from scenarios.seam.errors import ProgramError

    try:
        folder, sentence = recovery.recover(options.run)
    except ProgramError as error:
        raise ReportError(str(error)) from None
    print_notes([sentence])
    print(f"run folder: {folder}")


def times(options: Namespace) -> None:
    """Write the times of computations, as a file for a scenario's run.compute_times, or as a table of operators."""
    if options.csv is not None:
        replace.check_free(options.csv)
    elif options.table is None:
        raise ReportError("times: expected --csv FILE.csv, --table FILE.parquet, or both")
    trace_table.check_file(options.table)
    runs = [(text.printable(folder), store.load(folder)) for folder in options.runs]
    found = compute_times.measure(runs, options.skip, any_runs=options.any)
    rows = None if options.table is None else trace_table.rows_of_runs(found, [name for name, _ in runs])
    if options.csv is not None:
        replace.write_csv(found.rows, options.csv)
    print_notes(found.notes)
    table = None if rows is None else _write_table(rows, options.table)
    print_report(COMPUTATIONS, found)
    if options.csv is not None:
        print(f"times: {options.csv}")
    _say_table(table)

"""The commands of `python -m reports`; `published` and `calibrate` simulate, too."""

from __future__ import annotations

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from reports import report, trace_table
from reports.analysis.step_breakdown import check_steps, step_shown, timed_steps
from reports.compare import comparison
from reports.errors import ReportError
from reports.json_document import document
from reports.kineto import compute_times, recording
from reports.kineto import tables as kernel_tables
from reports.nccl import fit, fit_tables, nccl_tests, profile
from reports.nccl.fit import Figures
from reports.published import collective_tables, collectives, kernels, operator_tables, step_tables, steps
from reports.published.collectives import Measurements, Prediction, PublishedRow
from reports.published.kernels import KernelPrediction, PublishedTime
from reports.published.steps import StepPrediction, StepRow
from reports.run import Run
from reports.sections.comparison import COMPARISON, CompareView
from reports.sections.model import Report
from reports.sections.run import report as run_tables
from reports.sections.run.report import RUN
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
from reports.terminal.present import Tell, check_free, print_json, progress_line, write_kernels
from reports.terminal.render import rendered
from reports.validation import folder as validation_folder
from reports.writer import write
from twinstep.reporting import chakra as execution_traces

T = TypeVar("T")


def report_runs(options: Namespace) -> None:
    """Tables and a page of one run, of several side by side, or of a study."""
    if studies := [folder for folder in options.runs if is_study(folder)]:
        _study(studies[0], options)
        return
    if len(options.runs) == 1:
        run, folder = store.load(options.runs[0]), report.folder_of(options.runs[0], options.out)
        step_shown(run, options.step)
        view = RunView.of(run, None if options.json else options.step)
        _present(options, RUN, view, lambda tell: report.write(run, folder, step=options.step, tell=tell))
        return
    if options.step is not None:
        raise ReportError(f"--step {options.step}: expected with one run; several may not have that step")
    runs = zip(side_by_side.names_of(options.runs), map(store.load, options.runs), strict=True)
    found = side_by_side.side_by_side(list(runs))
    write_page = partial(report.write_side_by_side, found, options.runs, options.out)
    _present(options, BESIDE, BesideView(found), write_page)


def _study(folder: Path, options: Namespace) -> None:
    if len(options.runs) > 1:
        raise ReportError(f"{folder}: a study; expected no run and no other study beside it")
    if options.step is not None:
        raise ReportError(f"--step {options.step}: expected with a run; a study has no steps")
    view = StudyView(study_frame(folder), about_of(folder), str(folder))
    _present(options, STUDY, view, lambda _: report.write_study(folder, options.out))


def show(options: Namespace) -> None:
    """The summary of one run."""
    run = store.load(options.run)
    step_shown(run, options.step)
    if options.json:
        print_json(run_tables.as_json(run))
    else:
        text.show(run_tables.summarize(run, options.step), sys.stdout)


def compare(options: Namespace) -> None:
    """Predicted against measured: two runs, or all of a validation."""
    if options.real is None:
        _validation(options)
        return
    first, second = store.load(options.sim), store.load(options.real)
    found = comparison.compare(first, second, any_worlds=options.any)
    folders = [options.sim, options.real] if found.predicted is first else [options.real, options.sim]
    _present(options, COMPARISON, CompareView(found), partial(report.write_comparison, found, folders, options.out))


def _validation(options: Namespace) -> None:
    if options.out is not None:
        raise ReportError(f"--out {options.out}: expected with runs; a validation's page lies beside its runs")
    found = validation_folder.load(options.sim)
    _present(options, VALIDATION, ValidationView(found), partial(report.write_validation, found))


def _present(options: Namespace, sections: Report, view: Any, write_page: Callable[[Tell], Path]) -> None:
    """All as JSON; or the page written, the tables printed."""
    if options.json:
        print_json(document(sections, view))
        return
    with progress_line() as tell:
        page = write_page(tell)
    text.show(rendered(sections, view), sys.stdout)
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
    """Write a step of a run as execution traces, a file a rank."""
    step = execution_traces.write_traces(store.load(options.run), options.out, options.step)
    print(f"step {step} as execution traces: {options.out}")


def predict_published(options: Namespace) -> None:
    """Predictions against published times: of collectives, of whole steps, or of single operators."""
    of_steps = [file for file in options.files if steps.is_steps(file)]
    of_kernels = [file for file in options.files if kernels.form_of(file) is not None and file not in of_steps]
    for found, what in ((of_steps, "steps"), (of_kernels, "single operators")):
        if found and len(found) < len(options.files):
            raise ReportError(f"{found[0]}: times of {what}, and others beside it; expected files of one kind")
    if of_steps:
        _predict_steps(options)
    elif of_kernels:
        _predict_kernels(options)
    else:
        _predict_collectives(options)


def _predict_collectives(options: Namespace) -> None:
    found = _measurements(options, options.csv)
    _say_notes(found.notes)
    joined = collectives.join(found.rows, _predict, options.profile)
    if options.csv is not None:
        replace.write_csv(joined, options.csv)
    own = {name: _figures(name).nccl_efficiency for name in collective_tables.nccl_profiles(joined)}
    if options.json:
        print_json(collective_tables.as_json(joined, options.files, options.profile, own))
    else:
        text.show(collective_tables.summarize(joined, own), sys.stdout)


def _predict_steps(options: Namespace) -> None:
    _check_csv_options(options)
    found = [steps.read(file) for file in options.files]
    _say_notes(note for one in found for note in one.notes)
    joined = steps.join((_with_scenario(row) for one in found for row in one.rows), _predict_step, options.profile)
    if options.csv is not None:
        replace.write_csv(joined, options.csv)
    if options.json:
        print_json(step_tables.as_json(joined, options.files, options.profile))
    else:
        text.show(step_tables.summarize(joined), sys.stdout)


def _predict_kernels(options: Namespace) -> None:
    _check_csv_options(options)
    if options.profile is not None:
        _figures(options.profile)  # once, not as every row's reason
    found = [kernels.read(file, options.profile) for file in options.files]
    _say_notes(note for one in found for note in one.notes)
    joined = kernels.join((row for one in found for row in one.rows), _predict_kernel, options.profile)
    if options.csv is not None:
        replace.write_csv(joined, options.csv)
    if options.json:
        print_json(operator_tables.as_json(joined, options.files, options.profile))
    else:
        text.show(operator_tables.summarize(joined), sys.stdout)


def _check_csv_options(options: Namespace) -> None:
    """Refuse options that only nccl-tests' output has, and a file to write that is there already."""
    given = _taken(nccl_tests.RunHeader, options)
    if given != nccl_tests.NOTHING:
        raise ReportError(nccl_tests.needless(given))
    if options.csv is not None:
        replace.check_free(options.csv)


def kineto(options: Namespace) -> None:
    """Write a run folder of what torch.profiler exported, and a table of its operators."""
    check_free(options.out)
    trace_table.check_file(options.table)
    found, table = _read_traces(options)
    write(found.recording, options.out)
    _say_notes(found.notes)
    if options.json:
        print_json({"run": str(options.out), **kernel_tables.as_json(found), **({"table": table} if table else {})})
    else:
        text.show(kernel_tables.summarize(found), sys.stdout)
        print(f"run folder: {options.out}")
        _say_table(table)


def _read_traces(options: Namespace) -> tuple[recording.Profile, dict[str, Any] | None]:
    """Return the traces' recording, and what there is to say of their table; their events need not be kept."""
    traces = recording.read_traces(options.traces)
    table = None if options.table is None else _write_table(trace_table.rows_of_traces(traces), options.table)
    return recording.profile_of(traces, text.printable(options.out.resolve().name)), table


def _write_table(table: trace_table.Table, file: Path) -> dict[str, Any]:
    """Write a table of operators, and return where it is and how many rows it has."""
    rows = trace_table.write_rows(file, table)
    _say_notes(table[-1])
    return {"file": str(file), "rows": rows}


def _say_table(table: dict[str, Any] | None) -> None:
    if table is not None:
        print(f"table: {table['file']}, {text.counted(table['rows'], 'row')}")


def recover(options: Namespace) -> None:
    """The run of a launcher that was killed."""
    from real.supervise import recovery
    from scenarios.seam.errors import ProgramError

    try:
        folder, sentence = recovery.recover(options.run)
    except ProgramError as error:
        raise ReportError(str(error)) from None
    _say_notes([sentence])
    print(f"run folder: {folder}")


def times(options: Namespace) -> None:
    """What computations took, as a file for a scenario's run.compute_times, or as a table of operators."""
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
    _say_notes(found.notes)
    table = None if rows is None else _write_table(rows, options.table)
    text.show(compute_times.summarize(found), sys.stdout)
    if options.csv is not None:
        print(f"times: {options.csv}")
    _say_table(table)


def calibrate(options: Namespace) -> None:
    """A hardware profile with what nccl-tests says of one's own NCCL."""
    from scenarios.config.catalogue import profile_file

    found = _measurements(options, options.out)
    if options.out.suffix != ".toml":
        raise ReportError(f"--out {options.out}: expected a file whose name ends in .toml, as a scenario names it")
    rows, name, notes = fit.choose(collectives.join(found.rows, _predict, options.profile), found.rows)
    fitted = fit.fit(rows, _figures(name), lambda row, figures: _predict(row, name, figures).predicted_us)
    base = Path(profile_file(name) or name).read_text(encoding="utf-8")
    today = date.today().isoformat()
    replace.write_text(profile.calibrated(base, name, fitted, command=options.typed, date=today), options.out)
    _say_notes([*found.notes, *notes, *fitted.notes])
    if worse := fit_tables.worse(fitted):
        print(f"warning: {worse}", file=sys.stderr)
    if options.json:
        print_json(fit_tables.as_json(fitted, name, options.out))
    else:
        text.show(fit_tables.summarize(fitted, name), sys.stdout)
        print(f"profile: {options.out}")


def _measurements(options: Namespace, out: Path | None) -> Measurements:
    """The files' measurements; other options are checked first, as it would be too late after long work."""
    found = nccl_tests.read_files(options.files, _taken(nccl_tests.RunHeader, options))
    if out is not None:
        replace.check_free(out)
    if options.profile is not None:
        _figures(options.profile)  # once, not as every row's reason
    return found


def _say_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _figures(name: str) -> Figures:
    """What a profile, which must be there, says of NCCL."""
    from scenarios.config.load import load_profile
    from scenarios.seam.errors import ScenarioError

    try:
        found = load_profile(name)
    except ScenarioError as error:
        raise ReportError(str(error)) from None
    return _taken(Figures, found)


def _predict(row: PublishedRow, profile_name: str | None, figures: Figures | None = None) -> Prediction:
    from scenarios.seam.errors import ScenarioError
    from twinstep.published.simulated import predict

    known = {name: getattr(row, name) for name in collectives.SETTING}
    replaced = {} if figures is None else dataclasses.asdict(figures)
    if row.launch_us is not None:
        replaced["nccl_floor_ns"] = round(1e3 * row.launch_us)
    if replaced:
        known["figures"] = replaced
    try:
        found = predict(**known, profile=profile_name)
    except ScenarioError as error:
        raise ReportError("; ".join(error.sentences)) from None
    return _taken(Prediction, found)


def _predict_kernel(row: PublishedTime, profile_name: str | None) -> KernelPrediction:
    from scenarios.seam.errors import ScenarioError
    from twinstep.published.operators.predict import predict

    try:
        return _taken(KernelPrediction, predict(row.form, row.cells, profile_name))
    except ScenarioError as error:
        raise ReportError("; ".join(error.sentences)) from None


def _with_scenario(row: StepRow) -> StepRow:
    """The row with the scenario that it is held against, if there is one."""
    from scenarios.seam.errors import ScenarioError
    from twinstep.published.simulated import ready_scenario

    try:
        return dataclasses.replace(row, scenario=row.scenario or ready_scenario(row.model, row.round, row.system))
    except ScenarioError:
        return row


def _predict_step(row: StepRow, profile_name: str | None) -> StepPrediction:
    from scenarios.seam.errors import ProgramError, ScenarioError
    from twinstep.published.simulated import ready_scenario, scenario_of_step, simulate_step

    try:
        made = scenario_of_step(
            row.scenario or ready_scenario(row.model, row.round, row.system),
            profile=profile_name,
            gpu=row.gpu,
            nodes=row.nodes,
            gpus=row.gpus,
            global_batch=row.global_batch,
        )
        check_steps(run := Run.of(simulate_step(made)))
    except ScenarioError as error:
        raise ReportError("; ".join(error.sentences)) from None
    except ProgramError as error:
        raise ReportError(str(error)) from None
    predicted_ms = float(timed_steps(run)["step_ns"].median()) / 1e6
    return StepPrediction(predicted_ms=predicted_ms, scenario=made.name, profile=made.cluster.profile)


def _taken(kind: type[T], source: object) -> T:
    """A dataclass whose fields are attributes of the source."""
    return kind(**{field.name: getattr(source, field.name) for field in dataclasses.fields(kind)})  # type: ignore[arg-type]

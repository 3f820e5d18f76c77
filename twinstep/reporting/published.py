"""The commands that predict what is published, or was measured by nccl-tests; they simulate."""

from __future__ import annotations

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TypeVar

import pandas as pd

from reports.analysis.step_breakdown import check_steps, timed_steps
from reports.errors import ReportError
from reports.nccl import fit, fit_tables, nccl_tests, profile
from reports.nccl.fit import Figures
from reports.published import collectives, kernels, steps
from reports.published.collectives import Measurements, Prediction, PublishedRow
from reports.published.errors import nccl_profiles
from reports.published.kernels import KernelPrediction, PublishedTime
from reports.published.steps import StepPrediction, StepRow
from reports.run import Run
from reports.sections.calibration import NCCL_FIT, FitView
from reports.sections.model import Report
from reports.sections.published import COLLECTIVES, OPERATORS, STEPS, PublishedView
from reports.store import replace
from reports.terminal.present import print_report
from scenarios.progress_line import print_notes

T = TypeVar("T")


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
    print_notes(found.notes)
    joined = collectives.join(found.rows, _predict, options.profile)
    own = {name: _figures(name).nccl_efficiency for name in nccl_profiles(joined)}
    _show(options, COLLECTIVES, joined, own)


def _predict_steps(options: Namespace) -> None:
    _check_csv_options(options)
    found = [steps.read(file) for file in options.files]
    print_notes(note for one in found for note in one.notes)
    joined = steps.join((_with_scenario(row) for one in found for row in one.rows), _predict_step, options.profile)
    _show(options, STEPS, joined)


def _predict_kernels(options: Namespace) -> None:
    _check_csv_options(options)
    if options.profile is not None:
        _figures(options.profile)  # once, not as every row's reason
    found = [kernels.read(file, options.profile) for file in options.files]
    print_notes(note for one in found for note in one.notes)
    joined = kernels.join((row for one in found for row in one.rows), _predict_kernel, options.profile)
    _show(options, OPERATORS, joined)


def _show(options: Namespace, report: Report, joined: pd.DataFrame, present: Mapping[str, float] = {}) -> None:
    """Write the rows with their predictions if asked to, and print the report."""
    if options.csv is not None:
        replace.write_csv(joined, options.csv)
    view = PublishedView(joined=joined, files=options.files, profile=options.profile, present=present)
    print_report(report, view, as_json=options.json)


def _check_csv_options(options: Namespace) -> None:
    """Refuse options that only nccl-tests' output has, and a file to write that is there already."""
    given = _copy_fields(nccl_tests.RunHeader, options)
    if given != nccl_tests.NOTHING:
        raise ReportError(nccl_tests.needless(given))
    if options.csv is not None:
        replace.check_free(options.csv)


def calibrate(options: Namespace) -> None:
    """Write a hardware profile whose NCCL figures are fitted to the user's nccl-tests output."""
    from scenarios.config.catalogue import profile_file

    found = _measurements(options, options.out)
    if options.out.suffix != ".toml":
        raise ReportError(f"--out {options.out}: expected a file whose name ends in .toml, as a scenario names it")
    rows, name, notes = fit.choose(collectives.join(found.rows, _predict, options.profile), found.rows)
    fitted = fit.fit(rows, _figures(name), lambda row, figures: _predict(row, name, figures).predicted_us)
    base = Path(profile_file(name) or name).read_text(encoding="utf-8")
    today = date.today().isoformat()
    replace.write_text(profile.calibrated_profile(base, name, fitted, command=options.typed, date=today), options.out)
    print_notes([*found.notes, *notes, *fitted.notes])
    if worse := fit_tables.worse(fitted):
        print(f"warning: {worse}", file=sys.stderr)
    print_report(NCCL_FIT, FitView(fitted, name, options.out), as_json=options.json)
    if not options.json:
        print(f"profile: {options.out}")


def _measurements(options: Namespace, out: Path | None) -> Measurements:
    """Return the files' measurements, after checks of other options, to fail before the long work."""
    found = nccl_tests.read_files(options.files, _copy_fields(nccl_tests.RunHeader, options))
    if out is not None:
        replace.check_free(out)
    if options.profile is not None:
        _figures(options.profile)  # once, not as every row's reason
    return found


def _figures(name: str) -> Figures:
    """Return the NCCL figures of a profile that must exist."""
    from scenarios.config.load import load_profile

    with _mistakes_reported("\n"):
        return _copy_fields(Figures, load_profile(name))


def _predict(row: PublishedRow, profile_name: str | None, figures: Figures | None = None) -> Prediction:
    from twinstep.published.simulated import predict

    known = {name: getattr(row, name) for name in collectives.SETTING}
    replaced = {} if figures is None else dataclasses.asdict(figures)
    if row.launch_us is not None:
        replaced["nccl_floor_ns"] = round(1e3 * row.launch_us)
    if replaced:
        known["figures"] = replaced
    with _mistakes_reported():
        return _copy_fields(Prediction, predict(**known, profile=profile_name))


def _predict_kernel(row: PublishedTime, profile_name: str | None) -> KernelPrediction:
    from twinstep.published.operators.predict import predict

    with _mistakes_reported():
        return _copy_fields(KernelPrediction, predict(row.form, row.cells, profile_name))


def _with_scenario(row: StepRow) -> StepRow:
    """Return the row with the scenario that it is compared with, if there is one."""
    from scenarios.seam.errors import ScenarioError
    from twinstep.published.simulated import ready_scenario

    try:
        return dataclasses.replace(row, scenario=row.scenario or ready_scenario(row.model, row.round, row.system))
    except ScenarioError:
        return row


def _predict_step(row: StepRow, profile_name: str | None) -> StepPrediction:
    from twinstep.published.simulated import ready_scenario, scenario_of_step, simulate_step

    with _mistakes_reported():
        made = scenario_of_step(
            row.scenario or ready_scenario(row.model, row.round, row.system),
            profile=profile_name,
            gpu=row.gpu,
            nodes=row.nodes,
            gpus=row.gpus,
            global_batch=row.global_batch,
        )
        check_steps(run := Run.of(simulate_step(made)))
    predicted_ms = float(timed_steps(run)["step_ns"].median()) / 1e6
    return StepPrediction(predicted_ms=predicted_ms, scenario=made.name, profile=made.cluster.profile)


@contextmanager
def _mistakes_reported(between: str = "; ") -> Iterator[None]:
    """Raise mistakes of scenarios and programs as a ReportError of their sentences."""
    from scenarios.seam.errors import ProgramError, ScenarioError

    try:
        yield
    except ScenarioError as error:
        raise ReportError(between.join(error.sentences)) from None
    except ProgramError as error:
        raise ReportError(str(error)) from None


def _copy_fields(kind: type[T], source: object) -> T:
    """Return an instance of dataclass `kind` with its fields' values taken from the source's attributes."""
    return kind(**{field.name: getattr(source, field.name) for field in dataclasses.fields(kind)})  # type: ignore[arg-type]

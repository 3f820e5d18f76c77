"""The law of reports: every section is rendered by each output that it names, and a new one needs no output changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pandas as pd
import pytest
from rich.console import Group

import reports.sections
import twinstep
from reports.compare.comparison import compare
from reports.job.folder import JobRun
from reports.json_document import document
from reports.kineto import compute_times
from reports.kineto.recording import read
from reports.nccl.fit import fit
from reports.page import render
from reports.page.blocks import Page
from reports.page.sections import draw_sections
from reports.published import collectives, kernels, steps
from reports.published.kernels import PublishedTime
from reports.run import Run
from reports.sections.calibration import CalibrationView, FitView
from reports.sections.comparison import CompareView
from reports.sections.curves import CurvesView
from reports.sections.kineto import KernelsView
from reports.sections.model import BOTH, Block, Most, Report, ReportSection, ReportTable, Words, on_page, table_of
from reports.sections.plans import BEST, PLANNERS, PlansView, SimulatedPlan
from reports.sections.published import PublishedView
from reports.sections.regret import RegretView
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.sections.side_by_side import BesideView
from reports.sections.study import StudyView
from reports.sections.validation import ValidationView
from reports.side_by_side.frames import side_by_side
from reports.study.frame import study_frame
from reports.terminal import text
from reports.terminal.render import render_report
from scenarios.seam.trace import Recording
from tests.reports.kineto.events import GPU
from tests.reports.nccl.test_fit import DGX, measure
from tests.reports.nccl.test_fit import by_hand as time_by_hand
from tests.reports.page.compare.test_validation import validations, write
from tests.reports.page.study.synthetic import ABOUT, write_study
from tests.reports.published.rows import row as collective
from tests.reports.published.test_errors import always_100_us
from tests.reports.published.test_kernels import half_too_slow
from tests.reports.published.test_steps import HEAD, ROWS, of_nodes
from tests.reports.published.test_steps import write as steps_file
from tests.reports.recordings import (
    by_hand,
    info,
    of_script,
    on_nccl,
    thin,
    with_changes,
    with_kernels,
    with_layers,
    with_loads,
    with_spans,
)
from tests.reports.study.test_curves import CURVE, overlaps
from tests.reports.study.test_regret import KEYS, points_of
from tests.twinstep.jobs import small as small_job

_FOLDER = Path(__file__).parents[3] / "docs"
DOCS = "".join(path.read_text(encoding="utf-8") for kind in ("md", "csv") for path in _FOLDER.rglob(f"*.{kind}"))


def run(*, empty: bool = False, world: str = "sim") -> Run:
    return Run.of(Recording(info=info(world=world, complete=False, error="killed")) if empty else by_hand(world=world))


def time_of(gpu: str) -> PublishedTime:
    cells = {"kind": "fft" if gpu == "none" else "add", "desc": "4096", "gpu": gpu}
    return PublishedTime(file="k.csv", line=2, timed="us", form="operators", measured_us=4.0, cells=cells)


def study(folder: Path, *, failed: bool = False) -> StudyView:
    frame = study_frame(write_study(folder / "study", 12, failed=failed))
    return StudyView(frame, ABOUT, hrefs=[""] * len(frame))


def publish(joined: Any) -> PublishedView:
    return PublishedView(joined=joined, present={"p": 0.9})


def plans(_: Path) -> PlansView:
    both = [SimulatedPlan(name, Run.of(by_hand())) for name in (PLANNERS, BEST)]
    return PlansView(both, tried=2, stopped="", file="plan.json", command="predict", reserved_share=0.15)


def job(folder: Path, *, failures: bool = True) -> JobRun:
    text = small_job.JOB if failures else small_job.JOB.split("[[job.failures")[0]
    return twinstep.job(small_job.write(folder, text), **{"job.draws": 2})


def calibration(_: Path) -> CalibrationView:
    pieces = {"name": ["linear", "norm"], "measured_ns": [2e5, 3e4], "predicted_ns": [1e5, 3e4], "error": [-0.5, 0.0]}
    tables = {"pieces": pd.DataFrame({**pieces, "error_before": [-0.8, -0.1]})}
    return CalibrationView(data={}, tables=tables, words={"pieces": "2 pieces."}, of={"pieces": "the host"})


# For each report a whole subject, then one with as little as there can be.
SUBJECTS: dict[str, tuple[Callable[[Path], Any], ...]] = {
    "run.report.RUN": (lambda _: RunView.of(run()), lambda _: RunView.of(run(empty=True))),
    "run.summary.SUMMARY": (lambda _: RunView.of(run()), lambda _: RunView.of(run(empty=True))),
    "comparison.COMPARISON": (
        lambda _: CompareView(compare(run(), run(world="real"))),
        lambda _: CompareView(compare(run(empty=True), run(empty=True, world="real"))),
    ),
    "side_by_side.BESIDE": (
        lambda _: BesideView(side_by_side([("a", run()), ("b", run(world="real"))]), ["", ""]),
        lambda _: BesideView(side_by_side([("a", run(empty=True)), ("b", run(empty=True))]), ["", ""]),
    ),
    "validation.VALIDATION": (
        lambda folder: ValidationView(write(folder, validations())),
        lambda folder: ValidationView(write(folder, validations()[2:])),
    ),
    "study.STUDY": (study, lambda folder: study(folder, failed=True)),
    "curves.CURVES": (
        lambda _: CurvesView({"overlap": overlaps({64: 0.5, 128: 0.0})}, {"overlap": {"curve": CURVE}}),
        lambda _: CurvesView({}, {}),
    ),
    "regret.REGRET": (
        lambda _: RegretView(points_of([100, 400, 90, 50], [100, 200, 125, 50]), KEYS, "samples_per_s"),
        lambda _: RegretView(points_of([100], [100]), KEYS, "samples_per_s"),
    ),
    "published.COLLECTIVES": (
        lambda _: publish(collectives.join([collective(), collective(gpu="none")], always_100_us)),
        lambda _: publish(collectives.join([], always_100_us)),
    ),
    "published.OPERATORS": (
        lambda _: publish(kernels.join([time_of("H100"), time_of("none")], half_too_slow)),
        lambda _: publish(kernels.join([], half_too_slow)),
    ),
    "published.STEPS": (
        lambda folder: publish(steps.join(steps.read(steps_file(folder, f"{HEAD}\n{ROWS}")).rows, of_nodes)),
        lambda _: publish(steps.join([], of_nodes)),
    ),
    "plans.PLANS": (plans,),
    "job.report.JOB": (job, lambda folder: job(folder, failures=False)),
    "job.report.JOB_SUMMARY": (job,),
    "calibration.CALIBRATION": (calibration, lambda _: CalibrationView(data={}, tables={})),
    "calibration.NCCL_FIT": (lambda _: FitView(fit(measure(DGX), DGX, time_by_hand), "p", Path("p.toml")),),
    "kineto.KERNELS": (lambda _: KernelsView(read(GPU, "gpus")),),
    "kineto.COMPUTATIONS": (
        lambda _: compute_times.measure([("r", Run.of(read(GPU, "gpus").recording))], 0, any_runs=False),
    ),
}
CASES = [(name, make) for name, all_of in SUBJECTS.items() for make in all_of]
RECORDINGS = {
    "whole": with_layers(with_kernels(with_changes(with_loads(on_nccl(by_hand(), formula_ns=28))), 25)),
    "real": by_hand(world="real"),
    "script": of_script(by_hand()),
    "thinned": thin(),
    "no spans": thin(ranks=(), steps=None),
    "no steps": with_spans(by_hand()),
}
OF_RUNS = [
    pytest.param("run.report.RUN", lambda _, of=recording: RunView.of(Run.of(of)), id=name)
    for name, recording in RECORDINGS.items()
]


def report_of(name: str) -> Report:
    module, _, constant = name.rpartition(".")
    found: Report = getattr(import_module(f"reports.sections.{module}"), constant)
    return found


def print_only(section: ReportSection, of: Any) -> str:
    return text.as_text(render_report(Report(lines=lambda _: [], sections=[section]), of)).strip()


def test_every_list_of_sections_is_held_to_the_law() -> None:
    found = set()
    for module in walk_packages(reports.sections.__path__, "reports.sections."):
        values = vars(import_module(module.name)).items()
        found |= {id(value) for _, value in values if isinstance(value, Report)}
    assert found == {id(report_of(name)) for name in SUBJECTS}


@pytest.mark.parametrize(("name", "make"), [*CASES, *OF_RUNS])
def test_every_section_says_what_it_has_wherever_it_is_shown(
    name: str, make: Callable[[Path], Any], tmp_path: Path
) -> None:
    report, of = report_of(name), make(tmp_path)
    drawn = draw_sections(report, of)
    assert [one.name for one in drawn if bool(one.blocks) == bool(one.absent)] == []
    page = render.html(Page(title="", about=[], sections=drawn))
    keys = [*report.data(of)]
    for section in report.sections:
        assert section.title
        assert any(section.parts_for(output) for output in BOTH)
        absent = section.absent(of)
        assert not absent or absent.endswith(".")
        assert (section.show(of, "page") is None) == (f'<section id="{section.name}"' not in page), section.name
        assert bool(print_only(section, of)) == (section.show(of, "terminal") is not None), section.name
        keys += section.data(of)
    assert len({*keys}) == len(keys)
    assert document(report, of).keys() == {*keys}
    assert len({section.name for section in report.sections}) == len(report.sections)
    missing = [key for key in keys if f"`{key}`" not in DOCS]
    assert not missing, missing


def test_a_new_section_shows_up_in_the_terminal_on_the_page_and_in_json() -> None:
    def slowest(view: RunView) -> Iterator[Block]:
        yield Words("the slowest step stands first")
        steps = view.run.steps.sort_values("step_ns", ascending=False)
        columns = {"step": "step", "step_ns": "took"}
        yield table_of("Slowest steps", steps, columns, most=Most(1, 2), others="quicker ones", file="steps.csv")

    new: ReportSection = ReportSection(
        name="slowest",
        title="Slowest",
        parts=[slowest],
        data=lambda view: {"slowest": view.run.steps},
    )
    report, view = dataclasses.replace(RUN, sections=[*RUN.sections, new]), RunView.of(Run.of(by_hand()))
    printed = text.as_text(render_report(report, view))
    assert printed.endswith("Slowest steps; 2 quicker ones not shown\nstep    took\n────────────\n0     100 ns\n\n")
    assert "\nthe slowest step stands first\n" in printed
    words = render.html(Page(title="", about=[], sections=draw_sections(report, view)))
    assert '<a href="#slowest">Slowest</a>' in words
    assert "<p>The slowest step stands first.</p>" in words
    assert '<tr><td>1</td><td class="number">100 ns</td></tr>' in words
    assert '<p class="note">1 more are in steps.csv.</p>' in words
    assert [row["step"] for row in document(report, view)["slowest"]] == [0, 1, 2]


def test_an_output_has_only_the_columns_and_rows_that_are_for_it() -> None:
    table = ReportTable("t", ["a", "b"], [["1", "2"], ["3", "4"]], most=Most(1, 2))
    assert (table.grid("terminal").rows, table.grid("terminal").left_out) == ([["1", "2"]], 1)
    assert table.grid("page").left_out == 0
    section = ReportSection("s", "S", [on_page(lambda of: [table])])
    assert section.show(None, "terminal") is None
    assert isinstance(render_report(Report(lines=lambda of: [], sections=[section]), None), Group)

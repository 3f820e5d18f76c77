"""Builds a frozen scenario from a checked document; user mistakes are impossible from here on."""

from __future__ import annotations

from pathlib import Path

from scenarios.config.compute_times import ComputeTimes, read_compute_times
from scenarios.config.gpu import Gpu
from scenarios.config.interconnect import default_library
from scenarios.config.scenario import RunSettings, Scenario, TrainingJob
from scenarios.config.toml.checks import why_each
from scenarios.config.toml.derive import freeze
from scenarios.config.toml.hardware.build import build_cluster
from scenarios.config.toml.hardware.kernel_table import with_kernel_tables
from scenarios.config.toml.job.failure_profile import with_known_failures
from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document, RunSection

MOST_EACH = 256  # most ranks that are each simulated by default
_FEW_STEPS = 10  # users who request more want each of them


def build(document: Document, program: ProgramSpec, mistakes: Mistakes, path: Path) -> Scenario:
    """Return the scenario of a document without mistakes."""
    run = document.run or RunSection()
    cluster = with_kernel_tables(build_cluster(have(document.cluster)), mistakes)
    settings = freeze(
        RunSettings,
        document.run,
        payload=run.payload or program.payload(document),
        library=run.library or default_library(cluster.host.gpu.kind),
        compute_times=_compute_times(run.compute_times, mistakes) if run.compute_times else None,
    )
    made = Scenario(
        name=document.name or path.stem,
        path=path,
        program=program.name,
        cluster=cluster,
        run=settings,
        workload=program.build(document, mistakes),
        job=_job(document, cluster.host.gpu, mistakes),
    )
    return _with_representatives(made, document, program)


def _job(document: Document, gpu: Gpu, mistakes: Mistakes) -> TrainingJob | None:
    return freeze(TrainingJob, with_known_failures(document.job, gpu, mistakes)) if document.job is not None else None


def _with_representatives(scenario: Scenario, document: Document, program: ProgramSpec) -> Scenario:
    """Use host classes if the file requests them, or if it allows them and simulating every rank is slow."""
    run, effort = document.run or RunSection(), program.effort(scenario)
    if run.ranks == "alike":
        return scenario.with_run(fidelity="links")
    steps = min(scenario.run.steps, _FEW_STEPS)
    is_large = scenario.cluster.world_size > MOST_EACH or effort.is_large(steps)
    if run.ranks == "each" or not is_large or why_each(document, program):
        return scenario.with_run(folded_by=_options_to_fold(document, program, is_large=is_large))
    chosen = f"simulating {scenario.cluster.world_size:,} ranks one by one takes {effort.text(steps)}"
    return scenario.with_run(fidelity="links", ranks="alike", chosen=chosen)


def _options_to_fold(document: Document, program: ProgramSpec, *, is_large: bool) -> str:
    """Return the options with which representatives of the host classes are simulated; "" where nothing allows it."""
    run = document.run or RunSection()
    by_links = document.model_copy(update={"run": run.model_copy(update={"fidelity": "links"})})
    if why_each(by_links, program):
        return ""
    is_chosen = is_large and run.ranks is None  # as soon as the fidelity allows it
    ranks = [] if is_chosen else ["--ranks alike"]
    return " ".join([*ranks, *(["--fidelity links"] if run.fidelity == "flows" else [])])


def _compute_times(name: str, mistakes: Mistakes) -> ComputeTimes:
    times, wrong = read_compute_times(named_file(mistakes, ("run", "compute_times"), name))
    assert not wrong, "the checks have read it"
    return times

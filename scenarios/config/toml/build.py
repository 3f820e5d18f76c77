"""Builds a frozen scenario from a checked document; user mistakes are impossible from here on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scenarios.config.compute_times import ComputeTimes, read_compute_times
from scenarios.config.interconnect import default_library
from scenarios.config.scenario import Scenario
from scenarios.config.toml.checks import why_each
from scenarios.config.toml.hardware.build import build_cluster
from scenarios.config.toml.hardware.kernel_table import with_kernel_tables
from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document, RunSection

DEFAULT_STEPS = 3  # the first step of a run often differs from the others
DEFAULT_TIMEOUT_S = 60.0
MOST_EACH = 256  # most ranks that are each simulated by default
_FEW_STEPS = 10  # users who request more want each of them
NO_SAMPLES = 1  # the batch of programs that have no samples


def build(document: Document, program: ProgramSpec, mistakes: Mistakes, path: Path) -> Scenario:
    """Return the scenario of a document without mistakes."""
    run = document.run or RunSection()
    cluster = with_kernel_tables(build_cluster(have(document.cluster)), mistakes)
    made = Scenario(
        name=document.name or path.stem,
        path=path,
        program=program.name,
        cluster=cluster,
        batch_size=run.batch_size or NO_SAMPLES,
        steps=run.steps or DEFAULT_STEPS,
        seed=run.seed or 0,
        payload=run.payload or program.payload(document),
        fidelity=run.fidelity or "flows",
        library=run.library or default_library(cluster.host.gpu.kind),
        ranks=run.ranks or "each",
        balanced=bool(run.balanced),
        timeout_s=run.timeout / 1e9 if run.timeout else DEFAULT_TIMEOUT_S,
        workload=program.build(document, mistakes),
        compute_times=_compute_times(run.compute_times, mistakes) if run.compute_times else None,
    )
    return _with_representatives(made, document, program)


def _with_representatives(scenario: Scenario, document: Document, program: ProgramSpec) -> Scenario:
    """Use host classes if the file requests them, or if it allows them and simulating every rank is slow."""
    run, effort = document.run or RunSection(), program.effort(scenario)
    if run.ranks == "alike":
        return replace(scenario, fidelity="links")
    steps = min(scenario.steps, _FEW_STEPS)
    is_large = scenario.cluster.world_size > MOST_EACH or effort.is_large(steps)
    if run.ranks == "each" or not is_large or why_each(document, program):
        return replace(scenario, folded_by=_folded_by(document, program, is_large=is_large))
    chosen = f"simulating {scenario.cluster.world_size:,} ranks one by one takes {effort.text(steps)}"
    return replace(scenario, fidelity="links", ranks="alike", chosen=chosen)


def _folded_by(document: Document, program: ProgramSpec, *, is_large: bool) -> str:
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

"""Checks across the values of a scenario, and for missing ones; `document` checks single values.

Each check reads only sound values, so that one mistake does not cause others.
"""

from __future__ import annotations

from scenarios.config.compute_times import read_compute_times
from scenarios.config.interconnect import LIBRARIES, default_library, serving
from scenarios.config.toml.document import foreign_tables, tables_of
from scenarios.config.toml.hardware.checks import check_cluster
from scenarios.config.toml.job.checks import check_job
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec
from scenarios.config.toml.sections import Document, MeasuredSection, RunSection


def check(document: Document, program: ProgramSpec | None, mistakes: Mistakes) -> None:
    """Add everything that is missing from the scenario or does not fit together."""
    look = Look(mistakes=mistakes)
    look.need((), document, "program")
    check_profile(document, mistakes)
    check_job(document, look)
    for table in tables_of(program):
        table.check_in(document, look)
    if program is not None:
        _check_program(document, program, look)
    _check_run(document.run or RunSection(), document, program, look)


def _check_program(document: Document, program: ProgramSpec, look: Look) -> None:
    """Add a missing table of the program, tables that it does not read, and what its own check finds."""
    reason = f"program = '{program.name}'"
    if program.needs is not None and program.needs.of(document) is None:
        look.mistakes.missing((program.needs.key,), f"a table, because {reason}")
    foreign = (key for key in foreign_tables(program) if key in type(document).model_fields)
    look.refuse((), document, tuple(foreign), f"with {reason}")
    program.check_run(document, look)


def check_profile(document: Document, mistakes: Mistakes) -> None:
    """Add everything that is missing from the cluster alone or does not fit together."""
    look = Look(mistakes=mistakes)
    look.need((), document, "cluster")
    if document.cluster is not None:
        check_cluster(document.cluster, look)
    _check_measured(document.measured, look)


def _check_run(run: RunSection, document: Document, program: ProgramSpec | None, look: Look) -> None:
    if run.compute_times is not None:
        _check_compute_times(run.compute_times, look.mistakes)
    kind = document.gpu_kind
    if run.library and kind and kind not in LIBRARIES[run.library].serves:
        look.mistakes.add(("run", "library"), f"{serving(kind)}, because cluster.gpu.kind = '{kind}'")
    if run.ranks == "alike" and (reason := why_each(document, program)):
        look.mistakes.add(("run", "ranks"), f"'each', because {reason}")


def why_each(document: Document, program: ProgramSpec | None) -> str:
    """Return why every rank must be simulated; "" if representatives of host classes suffice."""
    run = document.run or RunSection()
    if run.fidelity == "flows":
        return "run.fidelity = 'flows'"
    if run.payload == "values":
        return "run.payload = 'values'"
    kind = document.gpu_kind
    library = run.library or (default_library(kind) if kind else None)
    if library and not LIBRARIES[library].can_fold:
        return f"the library is {library}"
    return program.why_each(document) if program is not None else ""


def _check_compute_times(name: str, mistakes: Mistakes) -> None:
    path = ("run", "compute_times")
    try:
        _, wrong = read_compute_times(named_file(mistakes, path, name))
    except ValueError as error:
        mistakes.add(path, str(error))
        return
    for sentence in wrong:
        mistakes.say(sentence)


def _check_measured(measured: MeasuredSection | None, look: Look) -> None:
    look.need(("measured",), measured, "machine", "date", "command", "ranks")
    for index, group in enumerate((measured.groups if measured else None) or ()):
        look.need(("measured", "groups", index), group, *(key for key in type(group).model_fields if key != "spread"))

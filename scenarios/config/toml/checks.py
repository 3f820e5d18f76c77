"""What must hold between the values of a scenario, and what must be there; whether one value is right is `document`'s.

Each check looks only at values that are sound, so that one mistake does not bring forth others.
"""

from __future__ import annotations

from scenarios.config.compute_times import read_compute_times
from scenarios.config.toml.hardware.checks import check_cluster
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.schema import expected
from scenarios.config.toml.sections import Document, MeasuredGroup, MeasuredSection, RunSection
from scenarios.config.toml.workload.checks import check_dtypes, check_program, check_workload
from scenarios.config.toml.workload.model_checks import named_file


def check(document: Document, mistakes: Mistakes) -> None:
    """Add everything that is missing from the scenario or does not fit together."""
    look = Look(mistakes=mistakes)
    look.need((), document, "program", "cluster")
    check_program(document, look)
    if document.cluster is not None:
        check_cluster(document.cluster, look)
        check_dtypes(document, document.cluster, look)
    _check_run(document.run or RunSection(), document, look)
    check_workload(document, look)


def check_profile(document: Document, mistakes: Mistakes) -> None:
    """Add everything that is missing from the cluster alone or does not fit together."""
    look = Look(mistakes=mistakes)
    look.need((), document, "cluster")
    if document.cluster is not None:
        check_cluster(document.cluster, look)
    _check_measured(document.measured, look)


def _check_run(run: RunSection, document: Document, look: Look) -> None:
    if document.program == "dlrm" and run.batch_size is None:
        path = ("run", "batch_size") if document.run is not None else ("run",)
        phrase = expected(RunSection, "batch_size")
        look.mistakes.missing(path, phrase if document.run is not None else f"batch_size = {phrase}")
    if document.program in ("all_to_all", "powersgd"):
        look.refuse(("run",), run, ("batch_size",), f"with program = '{document.program}'")
    if run.compute_times is not None:
        _check_compute_times(run.compute_times, look.mistakes)
    gpu = document.cluster.gpu if document.cluster else None
    if run.library == "nccl" and gpu is not None and gpu.kind == "cpu":
        look.mistakes.add(("run", "library"), "'gloo', because cluster.gpu.kind = 'cpu'")
    if run.ranks == "alike" and (reason := why_each(document)):
        look.mistakes.add(("run", "ranks"), f"'each', because {reason}")


def why_each(document: Document) -> str:
    """Why every rank must be played; empty if one host may stand for others."""
    run, collective, exchange = document.run or RunSection(), document.collective, document.exchange
    gpu = document.cluster.gpu if document.cluster else None
    if run.fidelity != "links":
        return f"run.fidelity = '{run.fidelity or 'flows'}'"
    if run.payload == "values":
        return "run.payload = 'values'"
    if run.library == "gloo" or (gpu is not None and gpu.kind == "cpu"):
        return "the library is gloo"
    if collective is not None and collective.op == "broadcast":
        return "one rank differs from all others where collective.op = 'broadcast'"
    for name, section in (("collective", collective), ("exchange", exchange)):
        if section is not None and section.splits == "random":
            return f"{name}.splits = 'random'"
    return ""


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
        look.need(("measured", "groups", index), group, *(key for key in MeasuredGroup.model_fields if key != "spread"))

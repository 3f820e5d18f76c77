"""The table `collective` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import Collective, Scenario
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, Table
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.workloads.all_to_all.config import check_splits
from scenarios.workloads.collective.operations import OPERATIONS
from scenarios.workloads.effort import Effort


def _check(section: Any, document: Document, look: Look) -> None:
    path = ("collective",)
    look.need(path, section, "op", "size")
    check_splits(section, path, look)
    if section.op and not OPERATIONS[section.op].has_splits and look.mistakes.sound((*path, "op")):
        look.refuse(path, section, ("splits", "skew"), f"with op = '{section.op}'")
        if OPERATIONS[section.op].has_sums and section.dtype == "bool":
            look.mistakes.add((*path, "dtype"), f"a type of numbers, which '{section.op}' adds up")


def _why_each(document: Document) -> str:
    section = TABLE.of(document)
    if section is not None and section.op and OPERATIONS[section.op].has_root:
        return f"one rank differs from all others where collective.op = '{section.op}'"
    return "collective.splits = 'random'" if section is not None and section.splits == "random" else ""


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    return {"collective": TABLE.build(document)}


def step_effort(scenario: Scenario) -> Effort:
    """What simulating every rank takes: a barrier and the call."""
    ranks, has_pairs = scenario.cluster.world_size, OPERATIONS[have(scenario.collective).op].has_splits
    return Effort(pairs=ranks ** (2 if has_pairs else 1), operations=2 * ranks)


TABLE = Table(
    key="collective",
    values=Collective,
    about="The call. Required by program 'collective'.",
    check=_check,
)
SPEC = ProgramSpec(
    name="collective",
    factory="scenarios.workloads.collective.program:CollectiveProgram",
    summary="any collective alone",
    needs=TABLE,
    why_each=_why_each,
    build=_build,
    effort=step_effort,
)

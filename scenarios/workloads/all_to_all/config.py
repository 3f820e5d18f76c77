"""The table `exchange` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import Exchange, Scenario
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, Table
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.workloads.effort import Effort


def check_splits(section: Any, path: KeyPath, look: Look) -> None:
    """Add what does not fit between the size, the type of the elements and how they are split."""
    element = ELEMENT_BYTES[section.dtype or "float32"]
    if section.size is not None and look.mistakes.sound((*path, "dtype")) and section.size % element:
        look.mistakes.add((*path, "size"), f"a multiple of {element} bytes, a {section.dtype or 'float32'}")
    if section.skew and section.splits != "random" and look.mistakes.sound((*path, "splits")):
        look.mistakes.add((*path, "skew"), "0 unless splits = 'random'")


def _check(section: Any, document: Document, look: Look) -> None:
    look.need(("exchange",), section, "size")
    check_splits(section, ("exchange",), look)


def _why_each(document: Document) -> str:
    section = TABLE.of(document)
    return "exchange.splits = 'random'" if section is not None and section.splits == "random" else ""


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    return {"exchange": TABLE.build(document)}


def step_effort(scenario: Scenario) -> Effort:
    """What simulating every rank takes: a barrier, the exchange and its checksum."""
    ranks = scenario.cluster.world_size
    return Effort(pairs=ranks**2, operations=3 * ranks)


TABLE = Table(
    key="exchange",
    values=Exchange,
    about="The exchange. Required by program 'all_to_all'.",
    check=_check,
)
SPEC = ProgramSpec(
    name="all_to_all",
    factory="scenarios.workloads.all_to_all.program:AllToAllProgram",
    summary="an exchange alone",
    needs=TABLE,
    batch_size="refused",
    why_each=_why_each,
    build=_build,
    effort=step_effort,
)

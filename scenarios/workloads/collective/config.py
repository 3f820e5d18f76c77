"""The tables `exchange` and `collective` of a scenario file, and the programs that read one of them; loads no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import CollectiveCalls, Exchange, Scenario, TimedCollective
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable
from scenarios.config.toml.sections import Document
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.seam.traits import TRAITS
from scenarios.workloads.effort import Effort


def _check_splits(section: Any, key: str, look: Look) -> None:
    """Check size, element type and splits against each other."""
    element = ELEMENT_BYTES[section.dtype or "float32"]
    if section.size is not None and look.mistakes.sound((key, "dtype")) and section.size % element:
        look.mistakes.add((key, "size"), f"a multiple of {element} bytes, a {section.dtype or 'float32'}")
    if section.skew and section.splits != "random" and look.mistakes.sound((key, "splits")):
        look.mistakes.add((key, "skew"), "0 unless splits = 'random'")


def _check_exchange(section: Any, document: Document, look: Look) -> None:
    look.need(("exchange",), section, "size")
    _check_splits(section, "exchange", look)


def _check_collective(section: Any, document: Document, look: Look) -> None:
    path = ("collective",)
    look.need(path, section, "op", "size")
    _check_splits(section, "collective", look)
    if section.op and not TRAITS[section.op].has_splits and look.mistakes.sound((*path, "op")):
        look.refuse(path, section, ("splits", "skew"), f"with op = '{section.op}'")
        if TRAITS[section.op].has_sums and section.dtype == "bool":
            look.mistakes.add((*path, "dtype"), f"a type of numbers, which '{section.op}' adds up")


def _why_each(document: Document) -> str:
    for table in (EXCHANGE, COLLECTIVE):
        section = table.of(document)
        if section is not None and table is COLLECTIVE and section.op and TRAITS[section.op].has_root:
            return f"one rank differs from all others where collective.op = '{section.op}'"
        if section is not None and section.splits == "random":
            return f"{table.key}.splits = 'random'"
    return ""


def step_effort(scenario: Scenario) -> Effort:
    """Return the effort of simulating every rank: a barrier and the call, and the checksum of an exchange."""
    ranks, call = scenario.cluster.world_size, CollectiveCalls.of(scenario.workload)
    pairs = ranks ** (2 if TRAITS[call.op].has_splits else 1)
    return Effort(pairs=pairs, operations=(3 if isinstance(call, Exchange) else 2) * ranks)


EXCHANGE = ScenarioTable(
    key="exchange",
    values=Exchange,
    about="Size and splits of the exchange. Required by program 'all_to_all'.",
    check=_check_exchange,
)
COLLECTIVE = ScenarioTable(
    key="collective",
    values=TimedCollective,
    about="The collective and its size. Required by program 'collective'.",
    check=_check_collective,
)
_FACTORY = "scenarios.workloads.collective.program:CollectiveProgram"
ALL_TO_ALL_SPEC = ProgramSpec(
    factory=_FACTORY,
    workload=CollectiveCalls,
    summary="one all-to-all per step",
    needs=EXCHANGE,
    batch_size="refused",
    why_each=_why_each,
    effort=step_effort,
)
SPEC = ProgramSpec(
    factory=_FACTORY,
    workload=CollectiveCalls,
    summary="one call of any collective per step",
    needs=COLLECTIVE,
    why_each=_why_each,
    effort=step_effort,
)

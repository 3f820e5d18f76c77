"""The table `data`: how batches come to a rank; loads no torch."""

from __future__ import annotations

from typing import Any

from scenarios.config.scenario import Data
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.workloads.dlrm.checks import check_host_path
from scenarios.workloads.step_tables import PIPELINE


def _check(section: Any, document: Document, look: Look) -> None:
    if section.samples_per_s is None and look.mistakes.sound(("data", "samples_per_s")):
        look.refuse(("data",), section, ("per", "prefetch"), "without samples_per_s")
    if section.copies:
        check_host_path("data.copies = true", document, look.mistakes)


def _data(document: Document, mistakes: Mistakes) -> Data:
    """Build the data, with rates per rank."""
    section = DATA.of(document)
    if section is None or section.per != "host":
        return DATA.build(document)
    return DATA.build(document, samples_per_s=section.samples_per_s / have(have(document.cluster).gpus_per_host))


DATA = ScenarioTable(
    key="data",
    values=Data,
    about="How batches reach a rank. Default: they are on its GPU when a step begins.",
    check=_check,
    make=_data,
)


def check_data(document: Document, look: Look) -> None:
    """Add a mistake for a pipeline of copies if batches are not copied."""
    pipeline, section = PIPELINE.of(document), DATA.of(document)
    copies = section is not None and section.copies
    if pipeline is not None and pipeline.kind == "base" and not copies and look.mistakes.sound(("data", "copies")):
        look.mistakes.add(("pipeline", "kind"), "no 'base', which copies batches ahead, without data.copies = true")

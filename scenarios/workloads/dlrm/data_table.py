"""The table `data`: how batches come to a rank; loads no torch."""

from __future__ import annotations

from typing import Literal

from scenarios.config.scenario import Data
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given, have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.values import MicroBatches, SamplesRate
from scenarios.workloads.dlrm.checks import check_host_path
from scenarios.workloads.step_tables import PIPELINE


class DataSection(Section):
    """How batches come to a rank, for program 'dlrm'."""

    copies: bool | None = about(
        "Whether each batch is copied from pinned memory of the host to the GPU; on CPUs there is one memory. Default"
        " false: batches are on the GPU."
    )
    samples_per_s: SamplesRate | None = about(
        "Samples a second that the data loader delivers; a step waits for it. Default: it is never waited for."
    )
    per: Literal["rank", "host"] | None = about(
        "Whose rate that is: a rank's, or a host's, of which its ranks have equal parts. Default 'rank'."
    )
    prefetch: MicroBatches | None = about(
        "Batches that the loader works on ahead of those that are taken from it: what uneven steps can use. Default 1."
    )


def _check(section: DataSection, document: Document, look: Look) -> None:
    if section.samples_per_s is None and look.mistakes.sound(("data", "samples_per_s")):
        look.refuse(("data",), section, ("per", "prefetch"), "without samples_per_s")
    if section.copies:
        check_host_path("data.copies = true", document, look.mistakes)


DATA = Table(
    key="data",
    section=DataSection,
    about="How batches come to a rank. Default: they are on its device when a step begins.",
    check=_check,
)


def check_data(document: Document, look: Look) -> None:
    """Add a pipeline of copies where nothing is copied."""
    pipeline, section = PIPELINE.of(document), DATA.of(document)
    copies = section is not None and section.copies
    if pipeline is not None and pipeline.kind == "base" and not copies and look.mistakes.sound(("data", "copies")):
        look.mistakes.add(("pipeline", "kind"), "no 'base', which copies batches ahead, without data.copies = true")


def build_data(document: Document) -> Data:
    """The scenario's `data`; rates are each rank's."""
    section = DATA.of(document)
    keys = given(section, "copies", "samples_per_s", "prefetch")
    if section is not None and section.per == "host":
        keys["samples_per_s"] /= have(have(document.cluster).gpus_per_host)
    return Data(**keys)

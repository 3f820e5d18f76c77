"""The table `chakra` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scenarios.config.scenario import Launching, Scenario
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, Table, check_dtype
from scenarios.config.toml.section import Section, about, given, have
from scenarios.config.toml.sections import Document
from scenarios.workloads.chakra.nodes import TraceError
from scenarios.workloads.chakra.traces import Traces, digest, files_of, read_traces
from scenarios.workloads.effort import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraTraces:
    """Which traces are played, and how; `sha256` is of their contents."""

    named: Path = field(metadata={"is_of_playing": True})
    groups: Path | None = field(metadata={"is_of_playing": True})
    sha256: str
    dtype: str = "float32"
    compute: Literal["duration", "roofline"] = "duration"
    dependencies: Literal["data", "all"] = "data"

    def read(self) -> Traces:
        """Read them; raise TraceError if they changed into something that cannot be played."""
        return read_traces(self.named, self.groups, with_controls=self.dependencies == "all")


class ChakraSection(Section):
    """Execution traces of MLCommons' Chakra, one of each rank, as ASTRA-sim plays them."""

    traces: str | None = about(
        "The folder of the files NAME.RANK.et, or FOLDER/NAME where it has those of several names. Required."
    )
    groups: str | None = about(
        "A JSON file of lists of ranks by the names of their groups, ASTRA-sim's communicator groups, for traces with"
        " `pg_name`. Default none."
    )
    compute: Literal["duration", "roofline"] | None = about(
        "'duration': computing nodes take their duration, and those without one what the GPU takes for num_ops and"
        " tensor_size; 'roofline': what the GPU takes, and nodes that have neither their duration. Default 'duration'."
    )
    dtype: Literal["float32", "bfloat16", "float16"] | None = about(
        "The arithmetic of num_ops, at whose peak rate they run. Default 'float32'."
    )
    dependencies: Literal["data", "all"] | None = about(
        "'data': nodes wait for their data_deps, as in ASTRA-sim; 'all': for their ctrl_deps, too. Default 'data'."
    )


def _options(section: ChakraSection, mistakes: Mistakes) -> ChakraTraces:
    """Read what the section names; raise TraceError if it cannot be played."""
    named = named_file(mistakes, ("chakra", "traces"), have(section.traces))
    groups = None if section.groups is None else named_file(mistakes, ("chakra", "groups"), section.groups)
    options = ChakraTraces(
        named=named,
        groups=groups,
        sha256="",
        **given(section, "compute", "dtype", "dependencies"),
    )
    options.read()
    return options


def _check(section: ChakraSection, document: Document, look: Look) -> None:
    look.need(("chakra",), section, "traces")
    check_dtype(section.dtype, "chakra", document, look)
    if section.traces is None or not look.mistakes.sound(("chakra", "traces")):
        return
    try:
        _options(section, look.mistakes)
    except TraceError as error:
        look.mistakes.add(("chakra", "traces"), f"Chakra traces that can be played: {error}")


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    section = have(TABLE.of(document))
    options = _options(section, mistakes)
    found = digest(files_of(options.named), options.groups)
    # What the host does stands in the traces, which say when operators began.
    return {
        "options": dataclasses.replace(options, sha256=found),
        "launching": Launching(cuda_graphs=True),
    }


def step_effort(scenario: Scenario) -> Effort:
    """Return what simulating every rank takes: its nodes."""
    assert isinstance(scenario.options, ChakraTraces)
    return Effort(operations=sum(map(len, scenario.options.read().nodes)))


TABLE = Table(key="chakra", section=ChakraSection, about="The traces. Required by program 'chakra'.", check=_check)
SPEC = ProgramSpec(
    name="chakra",
    factory="scenarios.workloads.chakra.program:ChakraProgram",
    summary="Chakra execution traces",
    needs=TABLE,
    batch_size="refused",
    why_each=lambda document: "each rank has a trace of its own",
    build=_build,
    effort=step_effort,
)

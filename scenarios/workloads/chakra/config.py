"""The table `chakra` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from scenarios.config.keys import Key
from scenarios.config.scenario import Launching, Scenario, UsersCode
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable, check_dtype
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.workloads.chakra.nodes import TraceError
from scenarios.workloads.chakra.traces import Traces, digest, files_of, read_traces
from scenarios.workloads.effort import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraTraces:
    """Execution traces of MLCommons' Chakra, one per rank, simulated as ASTRA-sim does.

    `sha256` is the digest of their contents.
    """

    named: Annotated[
        Path,
        Key(
            "traces",
            "Folder of the files NAME.RANK.et, or FOLDER/NAME if it has files of several names. Required.",
            accepts=str,
        ),
    ] = field(metadata={"is_of_playing": True})
    groups: Annotated[
        Path | None,
        Key(
            doc="JSON file that maps names of groups to lists of ranks (communicator groups of ASTRA-sim), for traces"
            " with `pg_name`. Default: none.",
            accepts=str,
        ),
    ] = field(metadata={"is_of_playing": True})
    sha256: str = ""
    compute: Annotated[
        Literal["duration", "roofline"],
        "'duration': computing nodes take their recorded duration, or without one the GPU's time for num_ops and"
        " tensor_size; 'roofline': the GPU's time, or without num_ops and tensor_size the recorded duration."
        " Default 'duration'.",
    ] = "duration"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        "Dtype whose peak rate executes num_ops. Default 'float32'.",
    ] = "float32"
    dependencies: Annotated[
        Literal["data", "all"],
        "'data': nodes wait for their data_deps, as in ASTRA-sim; 'all': also for their ctrl_deps. Default 'data'.",
    ] = "data"

    def read(self) -> Traces:
        """Read the traces; raise TraceError if they have changed and can no longer be simulated."""
        return read_traces(self.named, self.groups, with_controls=self.dependencies == "all")


def _read(document: Document, mistakes: Mistakes) -> ChakraTraces:
    """Read the traces that the table names; raise TraceError if they cannot be simulated."""
    section = TABLE.of(document)
    named = named_file(mistakes, ("chakra", "traces"), have(section.traces))
    groups = None if section.groups is None else named_file(mistakes, ("chakra", "groups"), section.groups)
    traces = TABLE.build(document, named=named, groups=groups)
    traces.read()
    return traces


def _check(section: Any, document: Document, look: Look) -> None:
    look.need(("chakra",), section, "traces")
    check_dtype(section.dtype, "chakra", document, look)
    if section.traces is None or not look.mistakes.sound(("chakra", "traces")):
        return
    try:
        _read(document, look.mistakes)
    except TraceError as error:
        look.mistakes.add(("chakra", "traces"), f"Chakra traces that can be played: {error}")


def _traces(document: Document, mistakes: Mistakes) -> ChakraTraces:
    traces = _read(document, mistakes)
    return dataclasses.replace(traces, sha256=digest(files_of(traces.named), traces.groups))


def step_effort(scenario: Scenario) -> Effort:
    """Return the effort of simulating every rank: its nodes."""
    assert isinstance(scenario.options, ChakraTraces)
    return Effort(operations=sum(map(len, scenario.options.read().nodes)))


TABLE = ScenarioTable(
    key="chakra",
    values=ChakraTraces,
    about="The traces. Required by program 'chakra'.",
    check=_check,
    field="options",
    make=_traces,
)
SPEC = ProgramSpec(
    factory="scenarios.workloads.chakra.program:ChakraProgram",
    # Traces already contain the host's work: they record when operators began.
    workload=partial(UsersCode, launching=Launching(cuda_graphs=True)),
    summary="Chakra execution traces",
    needs=TABLE,
    batch_size="refused",
    why_each=lambda document: "each rank has a trace of its own",
    effort=step_effort,
)

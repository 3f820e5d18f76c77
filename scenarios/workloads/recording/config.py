"""The table `recording` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scenarios.config.keys import Key
from scenarios.config.scenario import Launching, Scenario, UsersCode
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.given_file import content
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.recording.file import check_scenario, read, recording_in
from scenarios.workloads.recording.recorded import SCRIPT, Recorded
from scenarios.workloads.step_tables import LAUNCHING

if TYPE_CHECKING:
    from scenarios.workloads.recording.recorder import ProgramRecorder

_FILE = ("recording", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A recording of a program, which is simulated in its place.

    `sha256` is the digest of its file. `uses_host_path` is that of the recorded scenario.
    """

    file: Annotated[
        Path, Key(doc="A run folder of `twinstep predict --record`, or its `recording.json.gz`. Required.", accepts=str)
    ] = field(metadata={"is_of_playing": True})
    sha256: str
    uses_host_path: bool

    def read(self) -> Recorded:
        """Return the recording; raise ValueError if the file has changed and is none any more."""
        return read(self.file, "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedProgram(UsersCode):
    """A program's recording: program 'recording'."""

    @property
    def copies_batches(self) -> bool:
        """Whether the recorded program used the links to the hosts' memory."""
        return bool(self.options.uses_host_path)


def _check(section: Any, document: Document, look: Look) -> None:
    look.need(("recording",), section, "file")
    if (launching := LAUNCHING.of(document)) is not None:
        reason = "with program = 'recording', which has what the program did"
        look.refuse(("launching",), launching, ("fusion", "grouped_all_reduce"), reason)
    if section.file is None or not look.mistakes.sound(_FILE):
        return
    try:
        found = read(_path_of_file(document, look.mistakes), "program")
    except ValueError as error:
        look.mistakes.add(_FILE, str(error))
    else:
        check_scenario(found, _FILE, document, look)


def _path_of_file(document: Document, mistakes: Mistakes) -> Path:
    return recording_in(named_file(mistakes, _FILE, have(have(TABLE.of(document)).file)))


def _read_recorded(document: Document, mistakes: Mistakes) -> RecordedRun:
    path = _path_of_file(document, mistakes)
    sha256 = hashlib.sha256(content(path)).hexdigest()
    return RecordedRun(file=path, sha256=sha256, uses_host_path=read(path, "program").uses_host_path)


def _launching(document: Document, mistakes: Mistakes) -> Launching:
    """Build how kernels are launched: as when the program was recorded, unless the file says it."""
    if LAUNCHING.of(document) is not None:
        return LAUNCHING.build(document)
    return Launching(cuda_graphs=read(_path_of_file(document, mistakes), "program").cuda_graphs)


def recorder_of(scenario: Scenario) -> ProgramRecorder | None:
    """Return a recorder for a scenario's program; None for a script, of which each run keeps a recording.

    Raises:
        ScenarioError: not every rank is simulated.
    """
    from scenarios.workloads.recording.recorder import ProgramRecorder  # noqa: PLC0415  (loads torch)

    if scenario.program == SCRIPT:
        return None
    if (ranks := scenario.run.ranks) != "each":
        raise ScenarioError(f"{scenario.path}: run.ranks = '{ranks}': expected 'each', to record every rank")
    return ProgramRecorder(scenario)


TABLE = ScenarioTable(
    key="recording",
    values=RecordedRun,
    about="The recording. Required by program 'recording'.",
    check=_check,
    field="options",
    make=_read_recorded,
)
SPEC = ProgramSpec(
    factory="scenarios.workloads.recording.program:RecordingProgram",
    workload=ReplayedProgram,
    summary="a recording of another program",
    needs=TABLE,
    may=(replace(LAUNCHING, make=_launching),),
    why_each=lambda document: "a recording has the calls of each rank",
)

"""The table `recording` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
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
from scenarios.workloads.script.recording.file import read, recording_in
from scenarios.workloads.script.recording.hardware import check_scenario
from scenarios.workloads.script.recording.recorded import SCRIPT, Recorded
from scenarios.workloads.step_tables import LAUNCHING

if TYPE_CHECKING:
    from scenarios.workloads.recording.recorder import ProgramRecorder

_FILE = ("recording", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A recording of a program, which is simulated in its place.

    `sha256` is the digest of its file.
    """

    file: Annotated[
        Path, Key(doc="A run folder of `python -m sim --record`, or its `recording.json.gz`. Required.", accepts=str)
    ] = field(metadata={"is_of_playing": True})
    sha256: str

    def read(self) -> Recorded:
        """Return the recording; raise ValueError if the file has changed and is none any more."""
        return read(self.file, "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedProgram(UsersCode):
    """A program's recording: program 'recording'. `uses_host_path` is that of the recorded scenario."""

    uses_host_path: bool

    @property
    def copies_batches(self) -> bool:
        """Whether the recorded program used the links to the hosts' memory."""
        return self.uses_host_path


def _check(section: Any, document: Document, look: Look) -> None:
    look.need(("recording",), section, "file")
    if (launching := LAUNCHING.of(document)) is not None:
        reason = "with program = 'recording', which has what the program did"
        look.refuse(("launching",), launching, ("fusion", "grouped_all_reduce"), reason)
    if section.file is None or not look.mistakes.sound(_FILE):
        return
    try:
        found = read(_named(document, look.mistakes), "program")
    except ValueError as error:
        look.mistakes.add(_FILE, str(error))
    else:
        check_scenario(found, _FILE, document, look)


def _named(document: Document, mistakes: Mistakes) -> Path:
    return recording_in(named_file(mistakes, _FILE, have(have(TABLE.of(document)).file)))


def _build(document: Document, mistakes: Mistakes) -> ReplayedProgram:
    path = _named(document, mistakes)
    found = read(path, "program")
    launching = Launching(cuda_graphs=found.cuda_graphs)
    return ReplayedProgram(
        options=RecordedRun(file=path, sha256=hashlib.sha256(content(path)).hexdigest()),
        launching=launching if LAUNCHING.of(document) is None else LAUNCHING.build(document),
        uses_host_path=found.uses_host_path,
    )


def recorder_of(scenario: Scenario) -> ProgramRecorder | None:
    """Return a recorder for a scenario's program; None for a script, of which each run keeps a recording.

    Raises:
        ScenarioError: not every rank is simulated.
    """
    from scenarios.workloads.recording.recorder import ProgramRecorder  # noqa: PLC0415  (loads torch)

    if scenario.program == SCRIPT:
        return None
    if scenario.ranks != "each":
        raise ScenarioError(f"{scenario.path}: run.ranks = '{scenario.ranks}': expected 'each', to record every rank")
    return ProgramRecorder(scenario)


TABLE = ScenarioTable(
    key="recording", values=RecordedRun, about="The recording. Required by program 'recording'.", check=_check
)
SPEC = ProgramSpec(
    name="recording",
    factory="scenarios.workloads.recording.program:RecordingProgram",
    summary="a recording of another program",
    needs=TABLE,
    may=(LAUNCHING,),
    why_each=lambda document: "a recording has the calls of each rank",
    build=_build,
)

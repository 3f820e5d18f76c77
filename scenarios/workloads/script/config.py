"""The table `script` of a scenario file, and its program's specification; loads no torch."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from scenarios.config.keys import LATER, Key
from scenarios.config.scenario import PlanFile, UsersCode
from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document, RunSection
from scenarios.config.toml.values import CountOrZero
from scenarios.given_file import content
from scenarios.planner.plan_file import read_modules
from scenarios.seam.traits import TRAITS
from scenarios.workloads.recording.file import check_scenario, read, recording_in
from scenarios.workloads.step_tables import BUCKETS, COMPRESSION, LAUNCHING


def _sorted_items(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script of your own, started as torchrun starts it.

    Attributes:
        sha256: the digest of the script's content, so that a changed script is a changed scenario; that of the recorded
            script, like the other options, if a `recording` is simulated in place of the script.
        is_exchanged: whether a recording's gradients use the scenario's buckets and compression, not the recorded ones.
        step_every: what marks steps, as `Marking` reads it.
        is_on_default: whether no profile was named, so that CPUs are predicted.
    """

    path: Annotated[
        Path,
        Key(doc="Path of the script, relative to this file. Required without `recording` or `module`.", accepts=str),
    ]
    sha256: str
    args: Annotated[tuple[str, ...], "Arguments of the script. Default: none."] = ()
    env: Annotated[
        tuple[tuple[str, str], ...],
        Key(doc="Environment variables to add. Default: none.", accepts=dict[str, str], read=_sorted_items),
    ] = ()
    recording: Annotated[
        Path | None,
        Key(
            doc="Run folder of a predicted script, which is simulated again instead of a script.",
            accepts=str,
            after="path",
        ),
    ] = field(default=None, metadata={"is_of_playing": True})
    is_exchanged: bool = False
    is_cut: Annotated[
        bool,
        Key(
            "modules",
            "Whether a measured step is split by module. Default true on CPUs, false on GPUs, where two events and an"
            " entry per module may take longer than the module's kernels.",
        ),
    ] = field(default=True, metadata={"is_of_playing": True})
    unrecorded_steps: Annotated[
        CountOrZero | None,
        "Steps that `twinstep run` times with the recording off, after `run.steps` recorded and two untimed"
        " ones. Default: `run.steps` on GPUs, 0 on CPUs; always 0 if `step_every` names a collective.",
    ] = field(default=None, metadata={"is_of_playing": True})
    step_every: Annotated[
        str,
        "What ends a step: 'optimizer', 'backward', 'forward' or a collective such as 'all_reduce', each with"
        " ':N' for every N-th one; or 'once' for scripts that make one step, which begins at the first call of a"
        " module. Default: twinstep.step() if the script imports twinstep, else 'optimizer'.",
    ] = ""
    has_traceback: Annotated[
        bool,
        Key(
            "traceback", "Whether an error in the script shows all frames, not only those of the script. Default false."
        ),
    ] = field(default=False, metadata={"is_of_playing": True})
    module: Annotated[
        str,
        Key(
            doc="Module to run as `python -m` does in the current folder, instead of `path` or together with the path"
            " of its file.",
            after="recording",
        ),
    ] = ""
    batch_size: Annotated[
        CountOrZero,
        "Samples of one rank in one step, from which reports have samples/s and prices; the script does not read it."
        " Default: unknown.",
    ] = field(default=0, metadata=LATER)
    plan: Annotated[
        PlanFile | None,
        Key(
            doc="Plan in JSON, as TorchRec or `twinstep plan` writes it, which each DistributedModelParallel of the"
            " script uses in place of its own. Default: none.",
            accepts=str,
        ),
    ] = field(default=None, metadata=LATER)
    is_on_default: bool = field(default=False, metadata={"is_of_playing": True})


class Marking(NamedTuple):
    """A rule for the ends of steps: each `period`-th "optimizer" step, "backward" or "forward" pass, or collective.

    "once" equals "optimizer", except that set-up ends where the first call of a module begins.
    """

    word: str
    period: int

    @staticmethod
    def of(text: str) -> Marking:
        """Parse a rule such as "backward", or "all_reduce:4" for every fourth all_reduce.

        Raises:
            ValueError: the text is no rule; the message is a phrase about what was expected.
        """
        word, _, number = text.partition(":")
        if word not in (*_MARKS, *TRAITS) or not (number.isdecimal() and int(number) if ":" in text else True):
            raise ValueError(
                f"{', '.join(_MARKS)} or a collective's name (all_reduce, all_gather, reduce_scatter, ...),"
                " with ':N' for each N-th one"
            )
        return Marking(word, int(number or 1))

    @property
    def is_of_calls(self) -> bool:
        """Whether calls of a collective mark the steps, so that calls have to be recorded."""
        return self.word in TRAITS


_MARKS = ("optimizer", "backward", "forward", "once")


def _check(section: Any, document: Document, look: Look) -> None:
    run, device = document.run or RunSection(), document.device
    launching = LAUNCHING.of(document)
    if launching is not None:
        reason = "with program = 'script', which has what the script does"
        look.refuse(("launching",), launching, ("fusion", "grouped_all_reduce"), reason)
    if section.recording is None:
        _check_script(section, look)
        for table in (BUCKETS, COMPRESSION):
            if table.of(document) is not None:
                look.mistakes.add((table.key,), f"no {table.key} without script.recording: a script has its own")
        if run.payload == "sizes" and device is not None and device.runs_on_cores:
            look.mistakes.add(("run", "payload"), "'values', as scripts on CPUs compute all values")
    else:
        reason = "with a recording, which has the script's"
        own = ("path", "module", "args", "env", "modules", "unrecorded_steps", "step_every", "traceback", "plan")
        look.refuse(("script",), section, own, reason)
        _check_recording(section, document, look)


def _check_script(section: Any, look: Look) -> None:
    if section.module is None:
        look.need(("script",), section, "path")
    elif section.path is None and file_of_module(section.module) is None:
        look.mistakes.add(
            ("script", "module"), f"a module that Python finds in {os.getcwd()} or among what is installed"
        )
    if section.plan is not None and look.mistakes.sound(("script", "plan")):
        try:
            read_modules(named_file(look.mistakes, ("script", "plan"), section.plan))
        except ValueError as error:
            look.mistakes.add(("script", "plan"), str(error))
    path = ("script", "path")
    if section.path is not None and look.mistakes.sound(path):
        file = named_file(look.mistakes, path, section.path)
        try:
            content(file)
        except FileNotFoundError:
            look.mistakes.add(path, f"a script, but there is no file {file}")
        except OSError as error:
            look.mistakes.add(path, f"a script, but {file} could not be read: {error.strerror}")
    if section.step_every is not None:
        try:
            marking = Marking.of(section.step_every)
        except ValueError as error:
            look.mistakes.add(("script", "step_every"), str(error))
        else:
            if section.unrecorded_steps and marking.is_of_calls:
                reason = f"0 with step_every = '{section.step_every}', as steps are then counted by their calls"
                look.mistakes.add(("script", "unrecorded_steps"), reason)


def _check_recording(section: Any, document: Document, look: Look) -> None:
    """Report mistakes if the recording is unreadable or does not match the scenario's cluster and steps."""
    path = ("script", "recording")
    if not look.mistakes.sound(path):
        return
    try:
        found = read(_recording(section, look.mistakes))
    except ValueError as error:
        look.mistakes.add(path, str(error))
    else:
        check_scenario(found, path, document, look)


def _recording(section: Any, mistakes: Mistakes) -> Path:
    return recording_in(named_file(mistakes, ("script", "recording"), have(section.recording)))


def _script(document: Document, mistakes: Mistakes) -> Script:
    section = have(TABLE.of(document))
    if section.recording is not None:
        recording = _recording(section, mistakes)
        found = read(recording)
        return Script(
            path=Path(found.script),
            sha256=found.sha256,
            args=tuple(found.args),
            env=tuple((name, value) for name, value in found.env),
            recording=recording,
            is_exchanged=BUCKETS.of(document) is not None or COMPRESSION.of(document) is not None,
        )
    path = file_of_module(section.module or "") if section.path is None else None
    path = path or named_file(mistakes, ("script", "path"), have(section.path))
    is_cut = not _is_launched(document) if section.modules is None else section.modules
    plan = None
    if section.plan is not None:
        file = named_file(mistakes, ("script", "plan"), section.plan)
        plan = PlanFile(path=file, sha256=hashlib.sha256(content(file)).hexdigest())
    digest = hashlib.sha256(content(path)).hexdigest()
    return TABLE.build(document, path=path, sha256=digest, is_cut=is_cut, plan=plan)


def file_of_module(name: str) -> Path | None:
    """Return the file that `python -m NAME` would run in the current folder, None without one; import nothing."""
    folders: Sequence[str] | None = [os.getcwd(), *sys.path]
    found = None
    for part in name.split("."):  # one by one, as the spec of a package without __init__.py looks for its parent
        found = None if folders is None else PathFinder.find_spec(part, folders)
        locations = None if found is None else found.submodule_search_locations
        folders = None if locations is None else [*locations]
    if found is not None and folders is not None:
        found = PathFinder.find_spec("__main__", folders)
    return Path(found.origin) if found is not None and found.origin is not None else None


def _is_launched(document: Document) -> bool:
    """Return whether the script's kernels run on simulated GPUs, which compute no values."""
    return document.device is not None and document.device.is_launched


def _payload(document: Document) -> Literal["values", "sizes"]:
    section = TABLE.of(document)
    is_recorded = section is not None and section.recording is not None
    return "sizes" if is_recorded or _is_launched(document) else "values"


TABLE = ScenarioTable(
    key="script",
    values=Script,
    about="The script. Required by program 'script'.",
    check=_check,
    field="options",
    make=_script,
)
SPEC = ProgramSpec(
    factory="scenarios.workloads.script.program:ScriptProgram",
    workload=UsersCode,
    summary="a training script of your own",
    needs=TABLE,
    may=(BUCKETS, COMPRESSION, LAUNCHING),
    payload=_payload,
    batch_size="refused",
    why_each=lambda document: "" if _is_launched(document) else "a script on CPUs goes by values",
)

"""A job: the parameters of a run, handed from the launcher to its ranks as one file."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from real.supervise.rank_status import START_S
from scenarios.config.scenario import Scenario
from scenarios.seam.trace import Recording

Check = Literal["always", "first", "never"]

# Functions that build a scenario's program (real ranks run scripts in a way of their own), and that store a recording.
PROGRAM = "scenarios.workloads.build:build"
MEASURED = {"script": "real.script.program:MeasuredScript"}
WRITER = "reports.writer:write"

if TYPE_CHECKING:  # the launcher has no need of torch
    from scenarios.seam.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run's parameters. `program` and `writer` name functions as "module:function".

    Attributes:
        program: builds a `Program` from the scenario and `arguments`.
        writer: stores a `Recording` in the folder `out`, whole or not at all; drafts lie in `spool`.
        spool: the folder in which ranks keep their measurements until the recording is stored.
        started: ISO time at which the run started.
        start_s: least time that ranks get to start, in s.
        check: which calls the members of a group compare before data moves: "always", "first" (calls issued before
            the end of the first training step) or "never".
        records: whether spans and metrics are kept; if not, they are dropped after each step.
        played_on: see `RunInfo`.
    """

    scenario: Scenario
    program: str
    arguments: tuple[Any, ...] = ()
    writer: str
    out: Path
    spool: Path
    started: str
    start_s: float = START_S
    check: Check = "first"
    records: bool = True
    played_on: str = ""

    def build(self) -> Program:
        """Build the program of the scenario."""
        make: Callable[..., Program] = function(self.program)
        return make(self.scenario, *self.arguments)

    def write(self, recording: Recording) -> None:
        """Store a recording in `out`."""
        function(self.writer)(recording, self.out, self.spool)

    def save(self, path: Path) -> None:
        """Write this job for the ranks of this machine."""
        # With sys.path, and pickled twice: `load` needs the path before it can unpickle a user's program.
        path.write_bytes(pickle.dumps((sys.path, pickle.dumps(self))))


def load(path: Path) -> Job:
    """Read a file that `save` wrote. Unpickling runs code: pass only files of this project."""
    paths, pickled = pickle.loads(path.read_bytes())
    # At the end: the launcher's folders must not hide modules that this process would find itself.
    sys.path += [path for path in paths if path not in sys.path]
    job = pickle.loads(pickled)
    assert isinstance(job, Job), "the launcher writes jobs"
    return job


def function(name: str) -> Callable[..., Any]:
    """Return the function named "module:function".

    Raises:
        ValueError: the name has another form.
        ImportError, AttributeError: there is no such module or function.
    """
    module, separator, attribute = name.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"'{name}': expected module:function")
    attribute_value: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return attribute_value

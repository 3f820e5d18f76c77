"""Job: what a run was asked for, handed from the launcher to its ranks as one file."""

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

# Who makes a scenario's program, but for those that real ranks play in their own way; who stores what was recorded.
PROGRAM = "scenarios.workloads.build:build"
MEASURED = {"script": "real.script.program:MeasuredScript"}
WRITER = "reports.writer:write"

if TYPE_CHECKING:  # the launcher has no need of torch
    from scenarios.seam.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run. `program` and `writer` name functions as "module:function".

    Attributes:
        program: makes a `Program` of the scenario and `arguments`.
        writer: stores a `Recording` in the folder `out`, whole or not at all; what is not whole yet lies in `spool`.
        spool: the folder in which ranks keep what they have measured until then.
        started: an ISO time.
        start_s: how long ranks may take until all of them play, at least.
        check: which calls the members of a group compare before data moves: "always", "first" (those issued before
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
        """The program."""
        make: Callable[..., Program] = function(self.program)
        return make(self.scenario, *self.arguments)

    def write(self, recording: Recording) -> None:
        """Store what was recorded."""
        function(self.writer)(recording, self.out, self.spool)

    def save(self, path: Path) -> None:
        """For the ranks of this machine to `load`, with where this process finds modules: a program may be a user's."""
        path.write_bytes(pickle.dumps((sys.path, pickle.dumps(self))))


def load(path: Path) -> Job:
    """What `save` wrote; only for files of our own, as unpickling runs code."""
    paths, pickled = pickle.loads(path.read_bytes())
    sys.path += [path for path in paths if path not in sys.path]
    job = pickle.loads(pickled)
    assert isinstance(job, Job), "the launcher writes jobs"
    return job


def function(name: str) -> Callable[..., Any]:
    """The function of a "module:function".

    Raises:
        ValueError: not of that form. ImportError or AttributeError: there is no such module or function.
    """
    module, separator, attribute = name.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"'{name}': expected module:function")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found

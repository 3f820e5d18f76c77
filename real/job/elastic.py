"""The parameters of a job on real ranks, as a file that its processes read."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from real.launch.job import PROGRAM, function
from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program

FILE = "TWINSTEP_ELASTIC_JOB"  # variable with the path of the file
HOST = "TWINSTEP_HOST"  # variable with the number of the host, of which an agent takes care
ADDRESS = "TWINSTEP_ADDRESS"  # variable with the address at which other hosts reach it
AGENT = "real.job.agent:main"
JOB_FILE = "elastic-job"
MONITOR_S = 0.1  # torchrun's --monitor-interval, its default
# A host that has not been heard of for so many intervals of so many seconds is lost: torchrun's rendezvous has 5 s, 3.
KEEP_ALIVE_S, KEEP_ALIVE_TRIES = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A job on real ranks.

    Attributes:
        scenario: what its ranks run.
        folder: where its journal, logs and checkpoints lie.
        interval_steps: steps between two checkpoints.
        sizes: bytes of each rank in a checkpoint; checkpoints take these entries in turn.
        restarts: how often a host's ranks may be restarted, as torchrun's --max-restarts.
        endpoint: address and port of the store in which hosts meet.
    """

    scenario: Scenario
    folder: Path
    interval_steps: int
    sizes: tuple[tuple[int, ...], ...]
    restarts: int
    endpoint: str = ""

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / "checkpoints"

    def program(self, steps: int) -> Program:
        """Build the program of the last `steps` steps."""
        make = function(PROGRAM)
        program: Program = make(self.scenario.with_run(steps=steps))
        return program

    def checkpoint_at(self, step: int) -> Path:
        """Return the folder of the checkpoint after `step` steps."""
        return self.checkpoints / f"step-{step}"

    def size_at(self, step: int, rank: int) -> int:
        """Return the bytes that a rank saves after `step` steps."""
        return self.sizes[(-(-step // self.interval_steps) - 1) % len(self.sizes)][rank]

    def saved_step(self) -> int:
        """Return the number of steps in the newest checkpoint that is whole; 0: there is none."""
        # torch.distributed.checkpoint writes the file ".metadata" last.
        whole = self.checkpoints.glob("step-*/.metadata")
        return max((int(path.parent.name.removeprefix("step-")) for path in whole), default=0)

    def save(self) -> Path:
        """Write this job for its processes; return the file."""
        path = self.folder / JOB_FILE
        path.write_bytes(pickle.dumps((sys.path, pickle.dumps(self))))
        return path


def load(path: Path) -> ElasticJob:
    """Read a file that `save` wrote."""
    paths, pickled = pickle.loads(path.read_bytes())
    sys.path += [each for each in paths if each not in sys.path]
    job = pickle.loads(pickled)
    assert isinstance(job, ElasticJob), "the launcher writes jobs"
    return job

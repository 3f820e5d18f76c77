"""A recording: the events of each rank, and a description of the recorded run; loads no torch."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.events.notes import StepEnd
from scenarios.workloads.recording.events.table import HOST
from scenarios.workloads.recording.events.tasks import RankCompute
from scenarios.workloads.recording.events.work import ComputeOnCpu, LaunchKernel

FORMAT = 7
SCRIPT = "script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recording.

    Attributes:
        script, sha256: the script's path where it was recorded, and the digest of its content.
        args, env: the script's arguments and environment variables.
        profile, kind: the hardware of the recorded prediction.
        hosts, gpus_per_host, steps: the size of the recorded prediction.
        flops_per_s: float32 rate of that hardware in FLOP/s, which converts CPU time to work.
        lines: the distinct lines of all ranks.
        sequences: indices of lines in order of issue; each distinct sequence once.
        compiled: per sequence, indices of lines of one step as torch.compile would issue it; empty: unknown.
        ranks: per rank, the index of its sequence.
        recorded_by: per rank, the rank whose log stands for it: itself, unless only representatives ran.
        keys: the keys of [cluster] beside its profile, and of [run], of the recorded scenario.
        program: the recorded program; a script's file names none, and has neither of the two fields below.
        uses_host_path: whether the program used the links to hosts' memory.
        cuda_graphs: whether kernels waited for no host.
    """

    script: str
    sha256: str
    args: list[str]
    env: list[list[str]]
    profile: str
    kind: Literal["cpu", "cuda"]
    hosts: int
    gpus_per_host: int
    steps: int
    flops_per_s: float
    lines: list[list[Any]]
    sequences: list[list[int]]
    compiled: list[list[int]]
    ranks: list[int]
    recorded_by: list[int]
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    program: str = SCRIPT
    uses_host_path: bool = False
    cuda_graphs: bool = False

    @property
    def operations(self) -> int:
        """The number of computations and collectives of all ranks; kernels in a row of one label and stream are one."""
        of_sequences = [self._operations(sequence) for sequence in self.sequences]
        return sum(of_sequences[each] for each in self.ranks)

    def _operations(self, sequence: Sequence[int]) -> int:
        found = 0
        runs = groupby((self.lines[each] for each in sequence if self.lines[each][0] != HOST), _kind)
        for (kind, *_), lines in runs:
            is_each = kind in (IssueCall.kind, RankCompute.kind)
            found += sum(1 for _ in lines) if is_each else kind in (ComputeOnCpu.kind, LaunchKernel.kind)
        return found

    def as_compiled(self) -> Recorded | None:
        """Return the recording with every step replaced by its compiled form; None if a sequence has none."""
        if not all(self.compiled):
            return None
        both = zip(self.sequences, self.compiled, strict=True)
        return replace(self, sequences=[self._with_steps(sequence, step) for sequence, step in both])

    def _with_steps(self, sequence: Sequence[int], step: Sequence[int]) -> list[int]:
        """Return a sequence with each of its steps replaced by `step`; set-up and the rest after the last step stay."""
        ends = [place for place, line in enumerate(sequence) if self.lines[line][0] == StepEnd.kind]
        return [*sequence[: ends[0] + 1], *(line for _ in ends[1:] for line in step), *sequence[ends[-1] + 1 :]]

    def to_bytes(self) -> bytes:
        """Return the file's content, which is deterministic."""
        of_program = () if self.program != SCRIPT else ("program", "uses_host_path", "cuda_graphs")
        content = {name: value for name, value in asdict(self).items() if name not in of_program}
        text = json.dumps({"format": FORMAT, **content}, separators=(",", ":"))
        return gzip.compress(text.encode(), mtime=0)


def _kind(line: Sequence[Any]) -> tuple[Any, ...]:
    """Return a key that groups lines simulated as one operation: kind, label and, on GPUs, stream."""
    if line[0] == LaunchKernel.kind:
        return line[0], line[1], line[3]
    return line[0], line[-1] if line[0] == ComputeOnCpu.kind else ""

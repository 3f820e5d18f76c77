"""A recording of a script as a file: what each rank asked of the simulator, to be played again without the script.

Gzipped JSON of the fields of `Recorded`. Lines are the forms of `lines.py`; loads no torch.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from scenarios import given_file
from scenarios.workloads.script.recording.checks import mistake

NAME = "recording.json.gz"
_FORMAT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recording.

    Attributes:
        script, sha256: the script's path where it was recorded, and the digest of its content.
        args, env: what it was given.
        profile, kind: of the hardware on which it was predicted then.
        hosts, gpus_per_host, steps: of that prediction.
        flops_per_s: what that hardware computes in float32, by which CPU time is taken for work.
        lines: what ranks asked, each once.
        sequences: indices of lines in the order in which ranks asked, each sequence once.
        ranks: of each rank, the index of its sequence.
        recorded_by: of each rank, the one that was recorded for it; itself unless there were too many.
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
    ranks: list[int]
    recorded_by: list[int]

    def to_bytes(self) -> bytes:
        """The file's content; the same for the same recording."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, separators=(",", ":"))
        return gzip.compress(text.encode(), mtime=0)


def recording_in(path: Path) -> Path:
    """The file that a path means: itself, or that of a run folder."""
    return path / NAME if path.is_dir() else path


def read(path: Path) -> Recorded:
    """Return the recording in a file.

    Raises:
        ValueError: what was expected instead, as a phrase.
    """
    try:
        content: Any = given_file.read_json(path)
    except FileNotFoundError:
        raise ValueError(f"a run folder of a predicted script, or its recording, but there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"a recording of a script, but {path} could not be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"a recording of a script, but {path} could not be read: {error}") from None
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise ValueError(f"a recording of this release (format {_FORMAT}), but {path} is none")
    names = {field.name for field in fields(Recorded)}
    if set(content) != names:
        raise ValueError(f"a recording of a script, but {path} is damaged: expected {', '.join(sorted(names))}")
    recorded = Recorded(**content)
    if (wrong := mistake(recorded)) is not None:
        raise ValueError(f"a recording of a script, but {path} is damaged: {wrong}")
    return recorded

"""The journal of a job: what happened, and when, as lines of JSON; each process appends to a file of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

from real.rank.lanes import now_ns

Event: TypeAlias = "dict[str, Any]"  # "ns" on this machine's monotonic clock, "by" (the writer), "what", and more
_FOLDER = "journal"


class JobJournal:
    """The journal of one process."""

    def __init__(self, folder: Path, by: str) -> None:
        (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
        self._path, self._by = folder / _FOLDER / f"{by}.jsonl", by

    def note(self, what: str, **more: object) -> int:
        """Append an event that happens now; return its time."""
        ns = now_ns()
        # One unbuffered write: a line survives its process, and a kill leaves none in parts.
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps({"ns": ns, "by": self._by, "what": what, **more}).encode() + b"\n")
        return ns


def read(folder: Path, by: str = "*") -> list[Event]:
    """Return the events of all processes, or of one, in order of time; a torn line is left out."""
    found = []
    for path in sorted((folder / _FOLDER).glob(f"{by}.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return sorted(found, key=lambda event: event["ns"])

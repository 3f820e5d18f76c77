"""Recordings as one file each, from the rank that writes to the launcher that fits: for files of our own alone."""

from __future__ import annotations

import pickle
from pathlib import Path

from scenarios.seam.trace import Recording

_NAME = "recording"


def keep(recording: Recording, out: Path) -> None:
    """For `Job.writer`."""
    out.mkdir()
    (out / _NAME).write_bytes(pickle.dumps(recording))


def kept(out: Path) -> Recording:
    """What `keep` wrote; unpickling runs code."""
    recording = pickle.loads((out / _NAME).read_bytes())
    assert isinstance(recording, Recording), "rank 0 keeps recordings"
    return recording

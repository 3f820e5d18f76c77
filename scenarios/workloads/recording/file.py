"""A recording as a file: each rank's events, which can be simulated again without what issued them.

The file is gzipped JSON of the fields of `Recorded`, version `FORMAT`. Lines are those of `events`; loads no torch.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal

from scenarios import given_file
from scenarios.workloads.recording.checks import mistake
from scenarios.workloads.recording.recorded import FORMAT, SCRIPT, Recorded

NAME = "recording.json.gz"


def recording_in(path: Path) -> Path:
    """Return the recording's file: `path` itself, or the one in the run folder `path`."""
    return path / NAME if path.is_dir() else path


def read(path: Path, of: Literal["script", "program"] = "script") -> Recorded:
    """Return the recording of a script, or of another program, in a file.

    Raises:
        ValueError: as for `read_any`, or the recording is of the other kind.
    """
    recorded = read_any(path, of)
    if (recorded.program == SCRIPT) != (of == "script"):
        key = "script.recording" if recorded.program == SCRIPT else "recording.file"
        raise ValueError(f"a recording of a {of}, but {path} is one of program '{recorded.program}' ({key})")
    return recorded


def read_any(path: Path, of: Literal["script", "program"] = "script") -> Recorded:
    """Return the recording in a file, which messages call one of a script or of a program.

    Raises:
        ValueError: the file holds no valid recording; the message is a phrase about what was expected.
    """
    what = f"a recording of a {of}"
    try:
        content: Any = given_file.read_json(path)
    except FileNotFoundError:
        raise ValueError(f"a run folder of a predicted {of}, or its recording, but there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{what}, but {path} could not be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{what}, but {path} could not be read: {error}") from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ValueError(f"a recording of this release (format {FORMAT}), but {path} is none")
    if unknown := sorted(content.keys() - {field.name for field in fields(Recorded)}):
        raise ValueError(f"{what}, but {path} is damaged: {unknown[0]!r}: expected no such key")
    if missing := [
        each.name
        for each in fields(Recorded)
        if each.default is each.default_factory is MISSING and each.name not in content
    ]:
        raise ValueError(f"{what}, but {path} is damaged: expected {missing[0]}")
    recorded = Recorded(**content)
    if (wrong := mistake(recorded)) is not None:
        raise ValueError(f"{what}, but {path} is damaged: {wrong}")
    return recorded

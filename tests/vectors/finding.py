"""Which files below a directory are recordings; reading them is left to `files`. Needs nothing but Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(directory: Path) -> Iterator[Path]:
    """Every file in a directory and below; directories that are links are entered too, each directory once.

    Raises:
        OSError: a directory cannot be read.
    """
    entered: set[str] = set()
    for folder, folders, names in os.walk(directory, onerror=_raise, followlinks=True):
        if os.path.realpath(folder) in entered:
            folders.clear()
            continue
        entered.add(os.path.realpath(folder))
        yield from (Path(folder, name) for name in names)


def is_like_a_recording(path: Path) -> bool:
    """Also what is packed or named otherwise: *.json.gz, *.jsonl, *.npy."""
    return any(suffix.lower().startswith((".json", ".np")) for suffix in path.suffixes)


def beside(path: Path, suffix: str) -> Path | None:
    """The file of the same name with another suffix, in capitals or not."""
    found = (other for other in path.parent.iterdir() if other.stem == path.stem and other.suffix.lower() == suffix)
    return min(found, default=None)


def _raise(error: OSError) -> None:
    raise error

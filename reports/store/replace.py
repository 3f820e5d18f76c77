"""Write files whole or not at all: new files, and files that replace older ones."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd

from reports.errors import ReportError


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a hidden sibling to fill, which then takes the file's place.

    An error leaves the older file unchanged, and no folder that was made for the file.

    Raises:
        ReportError: an OSError came up.
    """
    # A random name: two processes that replace one file must not share a draft.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    made: list[Path] = []
    try:
        made += [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        # Atomic within one folder: readers see the old file or the new one, never a part.
        os.replace(draft, path)
    except OSError as error:
        raise ReportError(f"{path}: could not be written: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise ReportError(f"{str(path)!r}: could not be written; expected a path in UTF-8") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()  # refused, and thus kept, where a file lies in it


def check_free(path: Path) -> None:
    """Check before long work that `write` will be able to create this file.

    Raises:
        ReportError: it exists already, or its folder does not exist.
    """
    if os.path.lexists(path):
        raise ReportError(f"{path}: exists already; nothing is ever overwritten, give another file")
    if not path.parent.is_dir():
        raise ReportError(f"{path}: could not be written: {path.parent} is not a folder")


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame as CSV, whole or not at all; unknown values are blank.

    Raises:
        ReportError: the file exists already, or the disk refuses.
    """
    write_text(frame.to_csv(index=False, lineterminator="\n"), path)


def write_text(content: str, path: Path) -> None:
    """Write a file in UTF-8, whole or not at all.

    Raises:
        ReportError: the file exists already, or the disk refuses.
    """
    check_free(path)
    with replace_file(path) as draft:
        draft.write_text(content, encoding="utf-8", newline="")


def sync(folder: Path) -> None:
    """Sync a folder and all of its content to disk."""
    for path in sorted(folder.rglob("*")):
        sync_one(path)
    sync_one(folder)


def sync_one(path: Path) -> None:
    """Sync one file, or a folder's own entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Draft folders: a hidden sibling, owned by one process, becomes the folder once it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reports.errors import ReportError
from reports.store.replace import sync, sync_one
from scenarios.owned_folder import OwnedError, clear, own

SPANS_FILE = "spans.parquet"  # exists in a draft from its first moment on


@contextmanager
def whole_folder(folder: Path, drafts: Path | None = None) -> Iterator[Path]:
    """Yield a hidden sibling to fill, which becomes `folder` at the end, synced to disk; an error removes it.

    Only one process at a time can fill it. Drafts of killed processes are removed. `drafts` is a folder of the same
    disk in which the sibling lies instead, and whose owner removes it.

    Raises:
        ReportError: `folder` exists already, another process fills it, or an OSError came up.
    """
    _refuse_taken(folder)
    with _own_draft(folder, drafts) as partial:
        try:
            yield partial
            sync(partial)
            # After the sync: the name must not be there before the content is on the disk.
            partial.rename(folder)
            # The new name is an entry of the parent, which has to be synced by itself.
            sync_one(folder.parent)
        except OSError as error:
            raise ReportError(f"{folder}: could not be written: {error.strerror or error}") from error
        except ReportError as error:  # of a file in it, which nobody finds by the draft's name
            raise type(error)(str(error).replace(str(partial), str(folder))) from error


def check_free(folder: Path) -> list[Path]:
    """Check before long work that `write` will be able to create this folder.

    Returns:
        Drafts that killed processes left next to it, which are removed.

    Raises:
        ReportError: it exists already, another process fills it, or nothing can be created there.
    """
    _refuse_taken(folder)
    try:
        left = [path for path in sorted(folder.parent.glob(".*.partial")) if _is_draft(path) and clear(path)]
    except OSError:
        left = []
    with _own_draft(folder):
        pass
    return left


def _is_draft(path: Path) -> bool:
    """Return whether a folder is a draft of a run, or of a job with its step's run, and no other program's folder."""
    return path.is_dir() and (
        not any(path.iterdir()) or any(path.glob(SPANS_FILE)) or any(path.glob(f"*/{SPANS_FILE}"))
    )


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Own an existing run for as long as the context lasts, to add to it.

    Raises:
        ReportError: another process writes or changes it.
    """
    with _own_draft(folder):
        yield


@contextmanager
def _own_draft(folder: Path, drafts: Path | None = None) -> Iterator[Path]:
    """Own the hidden draft folder of a run, which is removed at the end."""
    try:
        owned = own((drafts or folder.parent) / f".{folder.name}.partial")
    except OwnedError:
        raise ReportError(f"{folder}: another process is writing it; give another folder") from None
    except OSError as error:
        raise ReportError(f"{folder}: could not be written: {error.strerror or error}") from error
    try:
        yield owned.path
    finally:
        owned.remove()


def refuse_name(folder: Path) -> None:
    """Raise ReportError for a path that is not UTF-8, because Arrow opens only files with UTF-8 names."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ReportError(f"{str(folder)!r}: expected a path in UTF-8") from None


def _refuse_taken(folder: Path) -> None:
    refuse_name(folder)
    if os.path.lexists(folder):
        raise ReportError(f"{folder}: exists already; nothing is ever overwritten, give another folder")

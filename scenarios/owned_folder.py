"""Folders under construction, each locked by the process that fills it, so that leftovers of killed processes are
found.

Imports only the standard library, as all packages use it. The lock is flock(2) on the folder itself: the kernel
releases it when its process ends in any way, and process ids, which are reused, are not needed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

# No name that a person gives a folder: one so named is removed.
_SCRATCH = ".twinstep-scratch-"
# By this age a scratch folder is locked, if its process lives.
_YOUNG_S = 60.0


class OwnedError(OSError):
    """An error for a folder that another living process is filling."""


class Owned:
    """A folder that this process made and fills."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle = path, handle

    def remove(self) -> None:
        """Remove the folder, unless it has been renamed, and release the lock."""
        if _is_at(self._handle, self.path):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def own(path: Path) -> Owned:
    """Make and lock a folder; a leftover of a killed process is removed first.

    Raises:
        OwnedError: another process is filling it.
        OSError: it cannot be made.
    """
    while True:
        is_made = False
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            is_made = True
        with suppress(FileNotFoundError):  # its owner removed it meanwhile
            handle = _lock_folder(path, is_made=is_made)
            if handle is None:
                raise OwnedError(f"{path} is being written by another process")
            if os.listdir(handle):
                os.close(handle)
                clear(path)
                continue
            # The folder that was locked may have been removed and made again by another process in between.
            if _is_at(handle, path):
                return Owned(path, handle)
            os.close(handle)


def clear(path: Path) -> bool:
    """Remove a folder unless a living process fills it; return whether it is gone."""
    try:
        handle = _lock_folder(path)
    except OSError:
        return False
    if handle is None:
        return False
    try:
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)
    finally:
        os.close(handle)


def scratch() -> Owned:
    """Make a temporary folder for this process; the first call removes those left by killed processes."""
    _remove_leftovers(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    handle = _lock_folder(path, is_made=True)
    assert handle is not None, "nobody else locks a folder as young as this"
    return Owned(path, handle)


@cache  # a worker of a study makes a folder for each point, and the temporary folder may have very many entries
def _remove_leftovers(base: Path) -> None:
    """Remove the scratch folders in `base` that killed processes left, once per process."""
    for path in base.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            about = path.lstat()
            # A young folder may not be locked yet: it is made first, and locked after that.
            if about.st_uid == os.getuid() and path.is_dir() and time.time() - about.st_mtime > _YOUNG_S:
                clear(path)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a temporary folder that is removed at the context's end."""
    owned = scratch()
    try:
        yield owned.path
    finally:
        owned.remove()


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open folder is still at the path."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _lock_folder(path: Path, *, is_made: bool = False) -> int | None:
    """Open and lock a folder; None if another process has locked it, or may have.

    Owners are unknown on file systems without locks, such as NFS and some Lustre: only a folder that this process has
    just made (`is_made`) counts as its own.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        if not is_made:
            os.close(handle)
            return None
    return handle

"""Folders in the making: each is locked by the process that fills it, so that those of killed processes are known.

Of the standard library only, as all rooms use it. A lock is flock(2)'s on the folder itself: the kernel takes it back
when its process ends, however that ends, and no number of a process can be taken for another's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SCRATCH = "twinstep-"
# A scratch folder is locked by then, if its process lives.
_YOUNG_S = 60.0


class OwnedError(OSError):
    """A folder in the making that a living process fills."""


class Owned:
    """A folder that this process has made and fills."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle = path, handle

    def remove(self) -> None:
        """Remove the folder, unless it has another name by now, and give up the lock."""
        if _is_at(self._handle, self.path):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def own(path: Path) -> Owned:
    """Make the folder and lock it; one that a killed process has left there is removed.

    Raises:
        OwnedError: another process fills it.
        OSError: it cannot be made.
    """
    while True:
        is_made = False
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            is_made = True
        with suppress(FileNotFoundError):  # removed by its owner meanwhile
            handle = _locked(path, is_made=is_made)
            if handle is None:
                raise OwnedError(f"{path} is being written by another process")
            if os.listdir(handle):
                os.close(handle)
                clear(path)
                continue
            if _is_at(handle, path):
                return Owned(path, handle)
            os.close(handle)


def clear(path: Path) -> bool:
    """Remove a folder that no living process fills; return whether it is gone."""
    try:
        handle = _locked(path)
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
    """Make a folder for files of no longer life than the process's; remove those that killed processes have left."""
    base = Path(tempfile.gettempdir())
    for path in base.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            about = path.lstat()
            if about.st_uid == os.getuid() and path.is_dir() and time.time() - about.st_mtime > _YOUNG_S:
                clear(path)
    path = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    handle = _locked(path, is_made=True)
    assert handle is not None, "nobody else locks a folder as young as this"
    return Owned(path, handle)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder as `scratch` does, for as long as the context lasts."""
    owned = scratch()
    try:
        yield owned.path
    finally:
        owned.remove()


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open folder still lies at the path."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _locked(path: Path, *, is_made: bool = False) -> int | None:
    """Open a folder and lock it; None where another process has locked it, or may have.

    A file system without locks, as NFS and some of Lustre, tells nobody from anybody: only a folder that this process
    has just made is its own there.
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

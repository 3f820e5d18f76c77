"""Folders in the making: whose they are, and what becomes of those that killed processes have left."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from scenarios.owned_folder import _SCRATCH, OwnedError, _remove_leftovers, clear, own, scratch_folder


def test_a_folder_in_the_making_has_one_owner(tmp_path: Path) -> None:
    mine = own(tmp_path / "deep" / ".run.partial")
    (mine.path / "file").touch()
    with pytest.raises(OwnedError, match="is being written by another process"):
        own(mine.path)
    assert not clear(mine.path)
    mine.remove()
    assert not mine.path.exists()
    own(mine.path).remove()


def test_a_folder_that_has_another_name_by_now_stays(tmp_path: Path) -> None:
    mine = own(tmp_path / ".run.partial")
    mine.path.rename(tmp_path / "run")
    theirs = own(mine.path)
    mine.remove()
    assert theirs.path.is_dir()
    assert (tmp_path / "run").is_dir()


def test_folders_of_killed_processes_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / ".run.partial"
    code = "import os, sys, pathlib; from scenarios.owned_folder import own; path = pathlib.Path(sys.argv[1]);"
    code += "own(path); (path / 'half').touch(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert (path / "half").exists()
    mine = own(path)
    assert list(path.iterdir()) == []
    mine.remove()


def test_scratch_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, young = tmp_path / f"{_SCRATCH}old", tmp_path / f"{_SCRATCH}young"
    for path in (old, young):
        path.mkdir()
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    with scratch_folder() as mine:
        os.utime(mine, (time.time() - 3600, time.time() - 3600))
        _remove_leftovers.cache_clear()  # as in another process
        with scratch_folder():
            assert mine.is_dir()
        assert not old.exists()
        assert young.is_dir()
    assert not mine.exists()


@pytest.mark.parametrize("name", ["twinstep-check-a1b2", "twinstep-results", "twinstep"])
def test_other_folders_of_the_temporary_folder_are_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`real check` keeps its outcomes in such a folder, and a user may keep a clone there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (kept := tmp_path / name).mkdir()
    os.utime(kept, (time.time() - 3600, time.time() - 3600))
    _remove_leftovers.cache_clear()
    with scratch_folder():
        assert kept.is_dir()


def test_a_process_looks_for_scratch_folders_of_others_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder():
        (later := tmp_path / f"{_SCRATCH}later").mkdir()
        os.utime(later, (time.time() - 3600, time.time() - 3600))
        with scratch_folder():
            assert later.is_dir()


def test_without_locks_only_a_folder_just_made_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NFS, flock of a folder opened to be read fails: what another process fills must stay."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    mine = own(tmp_path / ".run.partial")
    (mine.path / "file").touch()
    assert not clear(mine.path)
    with pytest.raises(OwnedError):
        own(mine.path)
    assert (mine.path / "file").exists()
    mine.remove()
    assert not mine.path.exists()
    with scratch_folder() as folder:
        assert folder.is_dir()

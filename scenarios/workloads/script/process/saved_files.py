"""Keeps files of `torch.save` and torch.distributed.checkpoint apart, also while a script renames or removes them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from scenarios.workloads.script.forking import CHECKPOINTS

# The file in the prediction's folder that lists real directories made for files that are not in them.
_MADE = "made"


def keep_apart(folder: Path, filing: Callable[[], AbstractContextManager[None]]) -> None:
    """Make all ranks save into `folder` instead of the paths that they name, and load what they saved from there.

    A prediction makes few steps, some of them without values, so its checkpoints are worthless, and must overwrite
    none of the user's. Within `filing()` a simulated GPU leaves unknown values out.
    """
    save, load = torch.save, torch.load
    files = _SavedFiles(folder)
    _keep_distributed_apart(files, filing)

    def save_apart(obj: object, f: Any, *args: Any, **more: Any) -> None:
        place = files.new_place(f)
        with nullcontext() if place is None else filing():
            save(obj, place or f, *args, **more)

    def load_apart(f: Any, *args: Any, **more: Any) -> Any:
        saved = files.saved(f)
        # Unknown values are notes in the file, which mmap cannot map.
        return load(f, *args, **more) if saved is None else load(saved, *args, **{**more, "mmap": False})

    torch.save, torch.load = save_apart, load_apart
    os.remove = os.unlink = files.removing(os.remove)
    os.stat = files.looking(os.stat)  # `os.path.exists` and `Path.exists` ask it
    shutil.rmtree = files.removing_tree(shutil.rmtree)  # type: ignore[assignment]
    os.rename, os.replace = files.renaming(os.rename), files.renaming(os.replace)
    for name in ("copyfile", "copy", "copy2"):
        setattr(shutil, name, files.copying(getattr(shutil, name)))


def remove_made(folder: Path) -> None:
    """Remove real directories that were made for files in the prediction's `folder`, if nothing is in them."""
    with suppress(FileNotFoundError):
        for made in sorted((folder / _MADE).read_text().split("\0"), reverse=True):  # the innermost ones first
            with suppress(OSError):
                os.rmdir(made)


def _keep_distributed_apart(files: _SavedFiles, filing: Callable[[], AbstractContextManager[None]]) -> None:
    """Make torch.distributed.checkpoint change files in the folder only, also those of URLs, which fsspec opens."""
    for name in CHECKPOINTS:
        with suppress(ImportError):  # without fsspec
            _keep_system_apart(import_module(name).FileSystem, files, filing)


def _keep_system_apart(system: Any, files: _SavedFiles, filing: Callable[[], AbstractContextManager[None]]) -> None:
    create, exists, rename, make = system.create_stream, system.exists, system.rename, system.mkdir

    @contextmanager
    def create_stream(self: Any, path: Any, mode: str) -> Iterator[Any]:
        is_read = mode.startswith("r")
        place = files.saved(path) if is_read else files.new_place(path)
        opened = create(self, path, mode) if place is None else place.open(mode)
        with nullcontext() if is_read else filing(), opened as stream:
            yield stream

    def remove(_: Any, path: Any) -> None:
        if (saved := files.saved(path)) is not None:  # else the file is the user's, which a new one hides
            saved.unlink()

    def rename_apart(self: Any, path: Any, new_path: Any) -> None:
        saved, place = files.saved(path), files.new_place(new_path)
        if saved is None or place is None:
            rename(self, path, new_path)
        else:
            saved.rename(place)

    def make_folder(self: Any, path: Any) -> None:
        if "://" not in str(path):
            files.note_made(path)
            make(self, path)

    system.create_stream, system.rm_file, system.mkdir, system.rename = create_stream, remove, make_folder, rename_apart
    system.exists = lambda self, path: files.saved(path) is not None or exists(self, path)


class _SavedFiles:
    """The files that ranks have saved, in a folder of the prediction that mirrors the paths that the script names."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder / "saved", folder / _MADE

    def _place_of(self, file: Any) -> Path | None:
        """Return the place in the folder for a path; None if `file` is no path."""
        if not isinstance(file, str | os.PathLike):
            return None
        return self._folder / os.fsdecode(os.path.realpath(file)).lstrip(os.sep)

    def new_place(self, file: Any) -> Path | None:
        """Return the place in the folder for a path, where a file can be written; None if `file` is no path."""
        if (place := self._place_of(file)) is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def saved(self, path: Any) -> Path | None:
        """Return the file in the folder if something has been saved under this path, or below it; else None."""
        place = self._place_of(path)
        return place if place is not None and os.path.lexists(place) else None

    def note_made(self, path: Any) -> None:
        """List a real directory, and those above, that are about to be made, for `remove_made`."""
        real = Path(os.path.realpath(path))
        with self._made.open("a") as made:
            made.writelines(f"{each}\0" for each in (real, *real.parents) if not os.path.lexists(each))

    def copying(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        """Return `copy`, such as `shutil.copy`; copies of saved files are in the folder, too."""

        def copy_apart(src: Any, dst: Any, *args: Any, **more: Any) -> Any:
            if (saved := self.saved(src)) is None:
                return copy(src, dst, *args, **more)
            target = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
            copy(saved, self.new_place(target), *args, **more)
            return target

        return copy_apart

    def renaming(self, rename: Callable[..., None]) -> Callable[..., None]:
        """Return `rename`, which keeps saved files in the folder, and renames a real directory that has some."""

        def rename_apart(src: Any, dst: Any, **more: Any) -> None:
            saved = self.saved(src)
            if saved is None:
                rename(src, dst, **more)
            elif saved.is_dir() and os.path.lexists(src):
                self.note_made(dst)
                rename(src, dst, **more)
            if saved is not None:
                rename(saved, self.new_place(dst), **more)

        return rename_apart

    def removing(self, remove: Callable[..., None]) -> Callable[..., None]:
        """Return `remove`, which removes a saved file in place of a real one at its path."""

        def remove_apart(path: Any, *, dir_fd: int | None = None) -> None:
            # A path below an open directory, from `shutil.rmtree`, is not the script's.
            remove((self.saved(path) if dir_fd is None else None) or path, dir_fd=dir_fd)

        return remove_apart

    def removing_tree(self, remove: Callable[..., None]) -> Callable[..., None]:
        """Return `remove`, which removes a directory of saved files; of a real one at its path only what is empty."""

        @wraps(remove)
        def remove_apart(path: Any, *args: Any, **more: Any) -> None:
            if (saved := self.saved(path)) is None:
                remove(path, *args, **more)
                return
            remove(saved, *args, **more)
            for real, _, _ in os.walk(path, topdown=False):
                with suppress(OSError):
                    os.rmdir(real)

        return remove_apart

    def looking(self, stat: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        """Return `stat`, which also finds saved files."""

        def stat_apart(path: Any, **more: Any) -> os.stat_result:
            try:
                return stat(path, **more)
            except FileNotFoundError:
                if (saved := self.saved(path)) is None:
                    raise
                return stat(saved)

        return stat_apart

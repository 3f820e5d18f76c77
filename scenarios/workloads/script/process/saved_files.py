"""Keeps files of a script's `torch.save` apart, also while the script renames, copies, removes or looks for them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch


def keep_apart(folder: Path, filing: Callable[[], AbstractContextManager[None]]) -> None:
    """Make all ranks save into `folder` instead of the paths that they name, and load what they saved from there.

    A prediction makes few steps, some of them without values, so its checkpoints are worthless, and must overwrite
    none of the user's. Within `filing()` a simulated GPU leaves unknown values out.
    """
    save, load = torch.save, torch.load
    files = _SavedFiles(folder)

    def save_apart(obj: object, f: Any, *args: Any, **more: Any) -> None:
        place = files.place_of(f)
        with nullcontext() if place is None else filing():
            save(obj, place or f, *args, **more)

    def load_apart(f: Any, *args: Any, **more: Any) -> Any:
        saved = files.saved(f)
        # Unknown values are notes in the file, which mmap cannot map.
        return load(f, *args, **more) if saved is None else load(saved, *args, **{**more, "mmap": False})

    torch.save, torch.load = save_apart, load_apart
    os.remove = os.unlink = files.removing(os.remove)
    os.stat = files.looking(os.stat)  # `os.path.exists` and `Path.exists` ask it
    for module, names in ((os, ("rename", "replace")), (shutil, ("copyfile", "copy", "copy2"))):
        for name in names:
            setattr(module, name, files.with_target(getattr(module, name)))


class _SavedFiles:
    """The files that ranks have saved, in a folder of the prediction, by the paths that the script names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place_of(self, file: Any) -> Path | None:
        """Return the file in the folder for a path; None if `file` is no path."""
        if not isinstance(file, str | os.PathLike):
            return None
        return self._folder / hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()

    def saved(self, file: Any) -> Path | None:
        """Return the file in the folder if something has been saved under this path, else None."""
        place = self.place_of(file)
        return place if place is not None and os.path.lexists(place) else None

    def with_target(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return `act` on two paths, such as `os.replace`; a saved file's target is in the folder, too."""

        def act_apart(src: Any, dst: Any, *args: Any, **more: Any) -> Any:
            if (saved := self.saved(src)) is None:
                return act(src, dst, *args, **more)
            target = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
            act(saved, self.place_of(target), *args, **more)
            return target

        return act_apart

    def removing(self, remove: Callable[..., None]) -> Callable[..., None]:
        """Return `remove`, which removes a saved file in place of a real one at its path."""
        return lambda path, **more: remove(self.saved(path) or path, **more)

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

"""torch.save and torch.load while a script is predicted: what it saves it finds again, and no file is written over.

A prediction makes a few steps, some of them without values, so what it would save is worth nothing to its user.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from scenarios.workloads.script.gpu.storages import Storages


def keep_apart(folder: Path, storages: Storages | None) -> None:
    """Have all ranks save into `folder` in place of paths that they name, and load from there what they have saved.

    Files have what is known of the values of `storages`, those of simulated GPUs.
    """
    save, load = torch.save, torch.load

    def in_folder(file: Any) -> Path | None:
        """Where what a path names is kept; None if it is no path."""
        if not isinstance(file, str | os.PathLike):
            return None
        return folder / hashlib.sha256(os.path.abspath(file).encode()).hexdigest()

    def saved(obj: object, f: Any, *args: Any, **more: Any) -> None:
        kept = in_folder(f)
        with nullcontext() if storages is None or kept is None else storages.filing():
            save(obj, kept or f, *args, **more)

    def loaded(f: Any, *args: Any, **more: Any) -> Any:
        kept = in_folder(f)
        if kept is None or not kept.is_file():
            return load(f, *args, **more)
        return load(kept, *args, **{**more, "mmap": False})  # of unknown values a file has notes alone

    torch.save, torch.load = saved, loaded

"""torch.save and torch.load during a prediction: scripts load what they saved, and no user's file is overwritten.

A prediction makes few steps, some of them without values, so its checkpoints are worthless to the user.
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
    """Make all ranks save into `folder` instead of the paths that they name, and load what they saved from there.

    `storages`, of simulated GPUs, leave unknown values out of the files.
    """
    save, load = torch.save, torch.load

    def in_folder(file: Any) -> Path | None:
        """Return the file in `folder` for a path; None if `file` is no path."""
        if not isinstance(file, str | os.PathLike):
            return None
        return folder / hashlib.sha256(os.path.abspath(file).encode()).hexdigest()

    def save_apart(obj: object, f: Any, *args: Any, **more: Any) -> None:
        kept = in_folder(f)
        with nullcontext() if storages is None or kept is None else storages.filing():
            save(obj, kept or f, *args, **more)

    def load_apart(f: Any, *args: Any, **more: Any) -> Any:
        kept = in_folder(f)
        if kept is None or not kept.is_file():
            return load(f, *args, **more)
        return load(
            kept, *args, **{**more, "mmap": False}
        )  # unknown values are notes in the file, which mmap cannot map

    torch.save, torch.load = save_apart, load_apart

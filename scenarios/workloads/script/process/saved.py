"""torch.save and torch.load while a script is predicted: what it saves it finds again, and no file is written over.

A prediction makes a few steps, some of them without values, so what it would save is worth nothing to its user.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from scenarios.modules.operators import tensors_in
from scenarios.workloads.script.gpu.shadows import Shadows, is_meta


def keep_apart(folder: Path, shadows: Shadows | None) -> None:
    """Have all ranks save into `folder` in place of paths that they name, and load from there what they have saved.

    On a GPU that is not there tensors are saved with what is known of their values.
    """
    save, load = torch.save, torch.load

    def in_folder(file: Any) -> Path | None:
        """Where what a path names is kept; None if it is no path."""
        if not isinstance(file, str | os.PathLike):
            return None
        return folder / hashlib.sha256(os.path.abspath(file).encode()).hexdigest()

    def saved(obj: object, f: Any, *args: Any, **more: Any) -> None:
        if shadows is None:
            save(obj, in_folder(f) or f, *args, **more)
            return
        obj = tree_map_only(Tensor, lambda each: _known(each, shadows), obj)
        before, shadows.now.is_honest = shadows.now.is_honest, True  # torch saves meta tensors by their shape
        try:
            save(obj, in_folder(f) or f, *args, **more)
        finally:
            shadows.now.is_honest = before

    def loaded(f: Any, map_location: Any = None, *args: Any, **more: Any) -> Any:
        kept = in_folder(f)
        file = kept if kept is not None and kept.is_file() else f
        if shadows is None:
            return load(file, map_location, *args, **more)
        return _load_to_gpu(load, file, map_location, shadows, *args, **more)

    torch.save, torch.load = saved, loaded


def _known(tensor: Tensor, shadows: Shadows) -> Tensor:
    values = shadows.of(tensor) if shadows.is_of_gpu(tensor) else None
    return tensor if values is None else values


def _load_to_gpu(load: Any, file: Any, map_location: Any, shadows: Shadows, *args: Any, **more: Any) -> Any:
    """Load by way of the CPU, as C++ would look for a driver."""
    of_gpu: set[int] = set()

    def noted(storage: Any, location: str) -> Any:
        if location.startswith("cuda"):
            of_gpu.add(storage._cdata)
        return storage

    found = load(file, noted, *args, **more)
    tensors = found.state_dict(keep_vars=True) if isinstance(found, nn.Module) else found
    shadows.note_saved(each for each in tensors_in(tensors) if is_meta(each))
    if isinstance(map_location, str | torch.device):
        device = torch.device(map_location)
        if isinstance(found, nn.Module):
            return found.to(device)
        return tree_map_only(Tensor, lambda each: each.to(device), found) if device.type == "cuda" else found
    mapped = map_location if isinstance(map_location, Mapping) else {}
    device = torch.device(mapped.get("cuda:0", "cuda"))
    return tree_map_only(
        Tensor, lambda each: each.to(device) if each.untyped_storage()._cdata in of_gpu else each, found
    )

"""Finds what makes a program: ours by name, installed ones by entry point, anyone's by "package.module:factory".

Reads no scenario file, so that a rank loads no more than its program.
"""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ENTRY_POINTS = "twinstep.programs"


class Ours(NamedTuple):
    """Where one of our programs is: its `ProgramSpec`, in a file that loads no torch, and its `Program`."""

    spec: str
    factory: str


def _ours(package: str, program: str) -> Ours:
    return Ours(f"scenarios.workloads.{package}.config:SPEC", f"scenarios.workloads.{package}.program:{program}")


# They stand here, so that a checkout needs no installation.
BUILT_IN = {
    "dlrm": _ours("dlrm", "DlrmProgram"),
    "all_to_all": _ours("all_to_all", "AllToAllProgram"),
    "collective": _ours("collective", "CollectiveProgram"),
    "powersgd": _ours("powersgd", "PowerSGDProgram"),
}


def factory(name: str, folder: Path) -> Any:
    """What makes the program that a scenario file in `folder` names; imports it, and with it torch.

    Raises:
        ValueError: there is none; the message is what was expected instead.
    """
    if name in BUILT_IN:
        return imported(BUILT_IN[name].factory)
    found = imported(place_of(name), folder)
    further = getattr(found, "factory", None)  # of a `ProgramSpec`
    return imported(further, folder) if isinstance(further, str) else found


def place_of(name: str) -> str:
    """The "module:attribute" of a program that is not ours. ValueError as `factory` raises."""
    if ":" in name:
        return name
    entries = metadata.entry_points(group=ENTRY_POINTS)
    if name in entries.names:
        return entries[name].value
    *first, last = (f"'{known}'" for known in dict.fromkeys((*BUILT_IN, *sorted(entries.names))))
    raise ValueError(f"{', '.join(first)} or {last}")


def imported(place: str, folder: Path | None = None) -> Any:
    """What "module:attribute" names. ValueError as `factory` raises.

    With a `folder`, a module is looked for where Python looks, then in the working directory and in that folder.
    """
    module, _, attribute = place.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise ValueError("'package.module:factory'")
    if folder is not None:
        _look_in(Path.cwd(), folder.resolve())
    try:
        found = importlib.import_module(module)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"a module that can be imported, but importing {module} raised {text}") from error
    if folder is not None:
        _check_taken(module, getattr(found, "__file__", None), folder)
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ValueError(f"a program in {module}, but {error}") from None
    return found


def _look_in(*folders: Path) -> None:
    """Let Python find modules there; last, so that nothing there hides another module."""
    sys.path += [path for path in map(str, folders) if path not in sys.path]
    importlib.invalidate_caches()  # a module may have been written since


def _check_taken(module: str, loaded: str | None, folder: Path) -> None:
    """A module of the scenario's folder must not be hidden by another of its name."""
    own = folder.resolve().joinpath(*module.split(".")).with_suffix(".py")
    if own.is_file() and (loaded is None or not own.samefile(loaded)):
        raise ValueError(f"a module whose name is not taken, but {module} is {loaded or 'built in'}, not {own}")

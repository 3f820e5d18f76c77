"""Finds a program: built-in ones by name, installed ones by entry point, a user's by module or file.

Reads no scenario file, so that a rank loads no more than its program.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from typing import Any

from scenarios import given_file
from scenarios.config.scenario import Source
from scenarios.seam.errors import tell_error
from scenarios.workloads import by_path
from scenarios.workloads.sources import Code, closure, code_of, sources_of

ENTRY_POINTS = "twinstep.programs"


# Where each built-in program has its `ProgramSpec`, in a file that loads no torch. Listed here rather than as entry
# points, so that a checkout needs no installation.
BUILT_IN = {
    "dlrm": "scenarios.workloads.dlrm.config:SPEC",
    "all_to_all": "scenarios.workloads.collective.config:ALL_TO_ALL_SPEC",
    "collective": "scenarios.workloads.collective.config:SPEC",
    "powersgd": "scenarios.workloads.powersgd.config:SPEC",
    "script": "scenarios.workloads.script.config:SPEC",
    "recording": "scenarios.workloads.recording.config:SPEC",
    "chakra": "scenarios.workloads.chakra.config:SPEC",
    "given_step": "scenarios.workloads.given_step.config:SPEC",
}


_RUNS_CODE = ContextVar("runs_code", default=True)


@contextmanager
def without_code() -> Iterator[None]:
    """Import no code that a scenario names: `import_named` only checks that it could be found."""
    token = _RUNS_CODE.set(False)
    try:
        yield
    finally:
        _RUNS_CODE.reset(token)


def runs_code() -> bool:
    """Return whether code named by a scenario is imported; false inside `without_code`."""
    return _RUNS_CODE.get()


def factory(name: str, folder: Path) -> Any:
    """Return the factory of the program that a scenario file in `folder` names; imports it, and with it torch.

    Raises:
        ValueError: there is none; the message is what was expected instead.
    """
    found = import_named(BUILT_IN[name]) if name in BUILT_IN else import_named(place_of(name), folder)
    further = getattr(found, "factory", None)  # a `ProgramSpec` names its factory
    return import_named(further, folder) if isinstance(further, str) else found


def sources(name: str, factory: str, folder: Path) -> tuple[Source, ...]:
    """Return the source files of the user's program that a scenario file in `folder` names; () for built-in ones."""
    if name in BUILT_IN:
        return ()
    found = (_code(place, folder) for place in dict.fromkeys((place_of(name), factory)))
    return sources_of(code for code in found if code is not None)


def place_of(name: str) -> str:
    """Return the "module:attribute" of a program that is not built in; ValueError as for `factory`."""
    if ":" in name:
        return name
    entries = metadata.entry_points(group=ENTRY_POINTS)
    if name in entries.names:
        return entries[name].value
    *first, last = (f"'{known}'" for known in dict.fromkeys((*BUILT_IN, *sorted(entries.names))))
    raise ValueError(f"{', '.join(first)} or {last}")


def import_named(place: str, folder: Path | None = None, what: str = "a program") -> Any:
    """Return the object that "module:attribute" or "path/file.py:attribute" names; ValueError as for `factory`.

    A module is searched on Python's path; if a `folder` is given, then in the working directory and in that folder,
    too; a file's path is relative to it. Inside `without_code`, results with a folder are None. Errors call the object
    `what`.
    """
    module, _, attribute = place.rpartition(":")
    is_file = _is_file(module) and folder is not None
    if not all(part.isidentifier() for part in (*([] if is_file else module.split(".")), *attribute.split("."))):
        raise ValueError("'package.module:factory' or './file.py:factory'")
    if folder is not None and not runs_code():
        if is_file:
            _check_file(_file(module, folder))
        return None
    if folder is not None:
        found = _import_file(_file(module, folder)) if is_file else _import_beside(module, folder)
    else:
        found = _import(module, lambda: importlib.import_module(module))
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        text = str(error).replace(by_path.module_of(_file(module, folder)), module) if is_file and folder else error
        raise ValueError(f"{what} in {module}, but {text}") from None
    return found


def _is_file(module: str) -> bool:
    return "/" in module or module.endswith(".py")


def _file(module: str, folder: Path) -> Path:
    return Path(os.path.normpath(folder.resolve() / module))


def _code(place: str, folder: Path) -> Code | None:
    module = place.rpartition(":")[0]
    if not _is_file(module):
        return code_of(module)
    file = _file(module, folder)
    return Code(file.stem, file, file.parent)


def _import(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            raise ValueError(f"a module that can be imported, but there is no module {name}") from None
        raise ValueError(f"a module that can be imported, but importing {name} raised {tell_error(error)}") from error


def _import_beside(module: str, folder: Path) -> Any:
    _look_in(Path.cwd(), folder.resolve())
    found = _import(module, lambda: importlib.import_module(module))
    own = folder.resolve().joinpath(*module.split(".")).with_suffix(".py")
    if own.is_file():
        _check_taken(module, own)
    return found


def _check_file(file: Path) -> None:
    try:
        given_file.content(file)
    except FileNotFoundError:
        raise ValueError(f"a file of Python that is there, but there is no {file}") from None
    except OSError as error:
        raise ValueError(f"a file of Python, but {file} could not be read: {error.strerror}") from None
    if file.suffix != ".py":
        raise ValueError(f"a file of Python, whose name ends in .py, but it is {file}")


def _import_file(file: Path) -> Any:
    """Return the module of a file, imported again if the file or one that it imports has changed."""
    _check_file(file)
    code = Code(file.stem, file, file.parent)
    now = sources_of([code])
    if _as_imported.get(file, now) != now:
        by_path.forget(file)
    found = _import(file.name, lambda: by_path.load(file))
    _as_imported[file] = now
    for beside in closure(code):
        if beside.file != file and beside.module in sys.modules:
            _check_taken(beside.module, beside.file)
    return found


# Sources of each file's program at the time of its import.
_as_imported: dict[Path, tuple[Source, ...]] = {}


def _look_in(*folders: Path) -> None:
    """Add folders to the end of Python's path, so that they hide no other module."""
    sys.path += [path for path in map(str, folders) if path not in sys.path]
    importlib.invalidate_caches()  # a module may have been written meanwhile


def _check_taken(module: str, own: Path) -> None:
    """Raise ValueError if a module of the program's folder is hidden by another one of its name."""
    loaded = getattr(sys.modules[module], "__file__", None)
    if loaded is None or not own.samefile(loaded):
        raise ValueError(f"a module whose name is not taken, but {module} is {loaded or 'built in'}, not {own}")

"""Twinstep's packages beside modules of the same names in a user's folder.

The names `scenarios`, `sim`, `real` and `reports` are common: the folder of a user's script may have a `reports.py`.
After `claim` these names are Twinstep's packages, whatever comes first on `sys.path`. What a package lacks is looked up
in the user's module of its name: `import reports; reports.mine()` and `from real.mine import one` find the user's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, overload

_ROOMS = ("scenarios", "sim", "real", "reports")
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_REAL_ROOT = os.path.realpath(_ROOT)


def claim() -> None:
    """Make Twinstep's packages the modules of their names; a user's module that is loaded already keeps working."""
    for name in _ROOMS:
        loaded, own = sys.modules.get(name), os.path.join(_ROOT, name)
        if loaded is not None and os.path.samefile(os.path.dirname(loaded.__file__ or "/"), own):
            _share(loaded, own, None)
            continue
        spec = spec_from_file_location(name, os.path.join(own, "__init__.py"), submodule_search_locations=[own])
        assert spec is not None, "a package beside this one"
        assert spec.loader is not None, "a file"
        sys.modules[name] = package = module_from_spec(spec)
        spec.loader.exec_module(package)
        _share(package, own, loaded)


def _share(package: ModuleType, own: str, theirs: ModuleType | None) -> None:
    """Have a package look up in the user's module what it lacks; `theirs` is that module if it is loaded already."""
    name, lazy = package.__name__, package.__dict__.get("__getattr__")

    def find(attribute: str) -> Any:
        nonlocal theirs
        if lazy is not None:
            try:
                return lazy(attribute)
            except AttributeError:
                pass
        if theirs is None and not attribute.startswith("__"):
            theirs = _load_users(name)
        if theirs is None or not hasattr(theirs, attribute):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(theirs, attribute)

    package.__dict__["__getattr__"] = find
    package.__path__ = _RoomFolders(own, name)  # type: ignore[assignment]  # as a namespace package's, no list


def _load_users(name: str) -> ModuleType | None:
    spec = PathFinder.find_spec(name, list(_elsewhere()))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _elsewhere() -> Iterator[str]:
    """Yield the folders of `sys.path` but Twinstep's."""
    with suppress(FileNotFoundError):  # the working directory is gone
        yield from (place for place in sys.path if os.path.realpath(place) != _REAL_ROOT)


class _RoomFolders(Sequence[str]):
    """The folders in which a package's modules are found: its own, then the user's of its name on `sys.path` of now."""

    def __init__(self, own: str, name: str) -> None:
        self._own, self._name = own, name

    def __iter__(self) -> Iterator[str]:
        yield self._own  # nearly every search ends here
        theirs = (os.path.join(place, self._name) for place in _elsewhere())
        yield from filter(os.path.isdir, theirs)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return [*self][at]

    def __len__(self) -> int:
        return sum(1 for _ in self)

"""A package of the programs named by file, so that any process that unpickles one can import it.

A module's name contains the file's path, so that equal file names in different folders are different modules. A file
finds modules in its own folder first, like a script, and never those of another program's folder.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from urllib.parse import quote, unquote

_PREFIX = f"{__name__}."
# Modules of programs' folders, by folder, while those of another folder with equal names are loaded.
_put_aside: dict[Path, dict[str, ModuleType]] = {}


def module_of(file: Path) -> str:
    """Return the name under which `import_module` imports a file, given by its absolute path."""
    return _PREFIX + quote(str(file), safe="/ ").replace(".", "%2E")


def load(file: Path) -> ModuleType:
    """Import a file, given by its absolute path, or return it if already imported; raises whatever the file raises."""
    name = module_of(file)
    if name in sys.modules:
        _bring_back(file.parent)
    return importlib.import_module(name)


def forget(file: Path) -> None:
    """Make the next `load` import the file and its folder's modules again, for example after an edit."""
    sys.modules.pop(module_of(file), None)
    for name, module in list(sys.modules.items()):
        if _is_in(module, file.parent):
            del sys.modules[name]
    _put_aside.pop(file.parent, None)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """Compile the current file, ignoring bytecode: cached bytecode counts as current within the same second."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        folder = Path(self.path).parent
        _bring_back(folder)
        module.__package__ = ""  # like a script: modules of its folder are imported by their plain names
        with _first(str(folder)):
            super().exec_module(module)


class _Finder:
    """A finder on `sys.meta_path` for the modules of this package."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's spec, if it belongs to this package."""
        if not name.startswith(_PREFIX):
            return None
        file = unquote(name.removeprefix(_PREFIX))
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file))


@contextmanager
def _first(folder: str) -> Iterator[None]:
    """Search modules in the folder first; afterwards last, so that nothing there hides another module.

    Writes no bytecode for them: within the second of an edit Python would take it for current.
    """
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    keeps_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = keeps_none
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _bring_back(folder: Path) -> None:
    """Restore this folder's modules, and put modules of other programs' folders with equal names aside."""
    _put_aside.setdefault(folder, {})
    names = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in names and not name.startswith(_PREFIX):
            for other, modules in _put_aside.items():
                if other != folder and _is_in(module, other) and not _is_in(module, folder):
                    modules[name] = sys.modules.pop(name)
                    break
    sys.modules.update(_put_aside[folder])
    _put_aside[folder].clear()


def _is_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and folder in Path(str(file)).parents


sys.meta_path.insert(0, _Finder)

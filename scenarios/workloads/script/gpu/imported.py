"""Changes of a library's modules behind their import; nothing is imported for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_Changes = Mapping[str, Callable[[ModuleType], None]]


def change_imported(changes: _Changes) -> None:
    """Call `changes[name](module)` for each module that the process has, and for others once they are imported."""
    for name, change in changes.items():
        if name in sys.modules:  # loaded by the server from which ranks fork
            change(sys.modules[name])
    sys.meta_path.insert(0, _Changing(changes))


class _Changing(MetaPathFinder):
    """An import hook."""

    def __init__(self, changes: _Changes) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the usual spec of a module to change, with a loader that changes it; None for others."""
        found = PathFinder.find_spec(name, path, target) if name in self._changes else None
        if found is None or found.loader is None:
            return None
        load, change = found.loader.exec_module, self._changes[name]

        def load_changed(module: ModuleType) -> None:
            load(module)
            change(module)

        # Behind the module's own execution: its classes exist then, and no script has used them yet.
        found.loader.exec_module = load_changed  # type: ignore[method-assign]
        return found

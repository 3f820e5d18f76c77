"""Finds the keys of [cluster] and [run] from which a scenario is loaded, so that a recording of it keeps them."""

from __future__ import annotations

import os
from typing import Any

from scenarios.config.toml.tree import KeyPath, Tree, leaves

_TIMES = ("run", "compute_times")
_FILES = (("cluster", "profile"), ("cluster", "gpu", "kernel_table"), _TIMES)


def own_keys(tree: Tree) -> dict[str, dict[str, Any]]:
    """Return the keys of [run], and those of [cluster] that do not come from its profile; files as absolute paths."""
    own = [*tree.beside_profile, *tree.within_profile] if tree.profile else leaves(tree.values["cluster"])
    found: dict[Any, Any] = {"cluster": {}, "run": {}}
    for path in [("run", key) for key in tree.values.get("run", ())] + [("cluster", *path) for path in own]:
        table, value = found, dict[Any, Any](tree.values)
        for key in path[:-1]:
            table, value = table.setdefault(key, {}), value[key]
        table[path[-1]] = _files(tree, path, value[path[-1]]) if path in _FILES else value[path[-1]]
    return found


def _files(tree: Tree, path: KeyPath, names: Any) -> Any:
    """Return ready names as they are, and files' paths, which are relative to the file that has them, as absolute."""
    if isinstance(names, list):
        return [_files(tree, (*path, index), name) for index, name in enumerate(names)]
    file = os.path.join(os.path.dirname(tree.origin(path)), names)
    is_file = os.path.isfile(file) and (path == _TIMES or "." in names)
    return os.path.abspath(file) if is_file else names

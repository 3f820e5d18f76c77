"""Finds the keys of [cluster] and [run] from which a scenario is loaded, so that a recording of it keeps them."""

from __future__ import annotations

import copy
import os
from typing import Any

from scenarios.config.toml.tree import KeyPath, Tree, leaves

_PROFILE, _TABLES, _TIMES = ("cluster", "profile"), ("cluster", "gpu", "kernel_table"), ("run", "compute_times")


def own_keys(tree: Tree) -> dict[str, dict[str, Any]]:
    """Return the keys of [run], and those of [cluster] that do not come from its profile; files as absolute paths."""
    late = [path[1:] for path in tree.within_profile if path[0] == "cluster"]
    found = Tree(root="", values={"cluster": {}, "run": {}})
    for path in leaves({name: tree.values.get(name, {}) for name in found.values}):
        key = path[1:]
        is_own = key in tree.beside_profile or any(one[: len(key)] == key for one in late)
        if path[0] == "run" or not tree.profile or is_own:
            found.put(path, _value(tree, path), "")
    return found.values


def _value(tree: Tree, path: KeyPath) -> object:
    """Return a copy of a value, which has absolute paths if its key names files."""
    value = copy.deepcopy(tree.at(path))
    if path == _TABLES and isinstance(value, list):
        return [_file(tree, (*path, index), one) for index, one in enumerate(value)]
    return _file(tree, path, value) if path in (_PROFILE, _TABLES, _TIMES) else value


def _file(tree: Tree, path: KeyPath, name: Any) -> str:
    """Return a ready name as it is, and a file's path, which is relative to the file that names it, as absolute."""
    file = os.path.join(os.path.dirname(tree.origin(path)), name)
    is_file = os.path.isfile(file) and (path == _TIMES or "." in name)
    return os.path.abspath(file) if is_file else str(name)

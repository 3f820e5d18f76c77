"""Replaces a scenario's values by those of a command line or a study, before all values are checked."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from itertools import takewhile

from scenarios.config.overrides.keys import EXPECTED_KEY, is_several, items_of, names_of, path_of, places
from scenarios.config.toml.mistakes import SET, Mistakes, toml_text
from scenarios.config.toml.table_file.entries import TABLES
from scenarios.config.toml.tree import KeyPath, Tree

# Keys with a meaning in files only: what is read next, and what a profile states of itself.
_OF_FILES = ("include", "set", "measured")
# Keys of [run], the cluster's profile and its operator tables: those with an option of their own.
OVERRIDES = (
    *("steps", "seed", "batch_size", "payload", "fidelity", "ranks", "library", "timeout", "compute_times"),
    *("profile", "kernels"),
)
# This table is appended to the profile's tables, so it can only be placed after the profile is read.
_KERNELS = "kernels"


class Overrides:
    """Values by key, either a name in `OVERRIDES` or the path of any key; None keeps the file's value.

    `file` is the file that holds the values: mistakes name it, and paths are relative to it. If `file` is "", the
    values come from a command line, and mistakes begin with `--steps = 0: ...` or `--set cluster.hosts = 0: ...`.
    """

    def __init__(self, values: Mapping[str, object] | None = None, file: str = "") -> None:
        self._file = file
        self._left = [(key, value) for key, value in (values or {}).items() if value is not None]

    def put_if(self, decides: Callable[[KeyPath, object], bool], mistakes: Mistakes) -> None:
        """Put the values that decide on others' places; one without a place is a mistake."""
        first = [(key, value) for key, value in self._left if decides(self._path(key, value) or (), value)]
        for key, value in first:
            self._left.remove((key, value))
            if not self._put(mistakes.tree, key, value):
                mistakes.say(self._sentence(mistakes.tree, key, value))

    def put_early(self, tree: Tree) -> None:
        """Put the values whose place exists before the profile is laid under; one of them may name the profile."""
        self._left = [(key, value) for key, value in self._left if key == _KERNELS or not self._put(tree, key, value)]

    def put_late(self, mistakes: Mistakes) -> None:
        """Put the remaining values into what the profile has added; a value without a place is a mistake."""
        for key, value in self._left:
            if not self._put(mistakes.tree, key, value):
                mistakes.say(self._sentence(mistakes.tree, key, value))
            elif (path := self._path(key, value)) and path[0] == "cluster":
                table = takewhile(lambda part: isinstance(part, str) and not is_several(part), path[1:])
                mistakes.tree.within_profile.append(tuple(table))

    def _put(self, tree: Tree, key: str, value: object) -> bool:
        path = self._path(key, value)
        if path is None:
            return False
        if path[: len(TABLES)] == TABLES in tree.lost:
            return True  # the mistakes of the tables' file come first
        if key == _KERNELS:
            return tree.append(path, value, self._origin(key))
        found = list(places(tree, path))
        # A copy for each place, because a later override may change a part of the value.
        return bool(found) and all(tree.put(place, copy.deepcopy(value), self._origin(key)) for place in found)

    def _path(self, key: str, value: object) -> KeyPath | None:
        if key == "profile":
            return ("cluster", "profile")
        if key == _KERNELS:
            return ("cluster", "gpu", "kernel_table")
        if key in OVERRIDES:
            return ("run", key)
        if re.split(r"[.\[]", key)[0] in _OF_FILES:
            return None
        is_path = "." in key or "[" in key or isinstance(value, dict | list) or key == "program"
        return path_of(key) if is_path else None

    def _origin(self, key: str) -> str:
        if self._file:
            return self._file
        return f"--{key.replace('_', '-')}" if key in OVERRIDES else f"{SET}{key}"

    def _sentence(self, tree: Tree, key: str, value: object) -> str:
        path, where = self._path(key, value), f"{self._file}: " if self._file else ""
        said = f"{key} = {toml_text(value)}"
        if path is None and path_of(key) is None:
            return f"{where or SET}{said}: expected {EXPECTED_KEY}"
        if path is None:
            return f"{where}{said}: cannot be overridden; expected one of {', '.join(OVERRIDES)}, or {EXPECTED_KEY}"
        return f"{where or SET}{said}: expected {_has(tree, path)}"


def _has(tree: Tree, path: KeyPath) -> str:
    """Return a phrase for what the tree has where `path` leaves it."""
    value: object = tree.values
    for at, key in enumerate(path):
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[:at]).removeprefix(".")
        is_index = isinstance(key, int) or is_several(key)
        if isinstance(value, list) and not is_index and (names := names_of(value)):
            if str(key) not in names:
                return f"a name in {name}, such as {', '.join(get_close_matches(str(key), names) or names[:3])}"
            value = value[items_of(str(key), value)[0]]
            continue
        if not isinstance(value, dict | list) or isinstance(value, list) != is_index:
            return f"a place that the scenario has, but {name} is no {'array' if is_index else 'table'}"
        if isinstance(value, dict):
            value = value.get(key, {})
            continue
        indices = [key] if isinstance(key, int) else items_of(str(key), value)
        if max(indices, default=len(value)) >= len(value):
            known = f", [0] to [{len(value) - 1}]" if value else ""
            return f"an index of {name}, which has {len(value)}{known}"
        value = value[indices[0]]
    return "a place that the scenario has"

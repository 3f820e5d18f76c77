"""Puts values of a command line, or of a study, in place of a scenario's, before they are checked as a file's are."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping

from scenarios.config.overrides.keys import EXPECTED_KEY, indices_of, is_several, path_of, places
from scenarios.config.toml.mistakes import SET, Mistakes, toml_text
from scenarios.config.toml.tree import KeyPath, Tree

# Keys with a meaning in files alone: what is read after, and what a profile says of itself.
_OF_FILES = ("include", "set", "measured")
# Of [run], and the cluster's profile.
OVERRIDES = (
    *("steps", "seed", "batch_size", "payload", "fidelity", "ranks", "library", "timeout", "compute_times"),
    *("profile", "kernels"),
)
# A table that lies over those that a profile brings, so that it has no place before.
_KERNELS = "kernels"


class Overrides:
    """Values by key: a name in `OVERRIDES`, or the path of any key; None leaves the file's value.

    `file` is where they stand, so that mistakes name it and paths are relative to it; else they are a command line's,
    and mistakes are called `--steps = 0: ...` and `--set cluster.hosts = 0: ...`.
    """

    def __init__(self, values: Mapping[str, object] | None = None, file: str = "") -> None:
        self._file = file
        self._left = [(key, value) for key, value in (values or {}).items() if value is not None]

    def put_early(self, tree: Tree) -> None:
        """Put what has a place before the profile is laid under, which one of them may name."""
        self._left = [(key, value) for key, value in self._left if key == _KERNELS or not self._put(tree, key, value)]

    def put_late(self, mistakes: Mistakes) -> None:
        """Put the others into what the profile has brought; what has no place then is a mistake."""
        for key, value in self._left:
            if not self._put(mistakes.tree, key, value):
                mistakes.say(self._sentence(mistakes.tree, key, value))

    def _put(self, tree: Tree, key: str, value: object) -> bool:
        path = self._path(key, value)
        if path is None:
            return False
        if key == _KERNELS:
            return tree.append(path, value, self._origin(key))
        found = list(places(tree, path))
        # A copy for each place: a later override may change what is in it.
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
    """What is there instead of the first part of a path that is not."""
    value: object = tree.values
    for at, key in enumerate(path):
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[:at]).removeprefix(".")
        is_index = isinstance(key, int) or is_several(key)
        if not isinstance(value, dict | list) or isinstance(value, list) != is_index:
            return f"a place that the scenario has, but {name} is no {'array' if is_index else 'table'}"
        if isinstance(value, dict):
            value = value.get(key, {})
            continue
        indices = [key] if isinstance(key, int) else indices_of(str(key), len(value))
        if max(indices, default=len(value)) >= len(value):
            known = f", [0] to [{len(value) - 1}]" if value else ""
            return f"an index of {name}, which has {len(value)}{known}"
        value = value[indices[0]]
    return "a place that the scenario has"

"""Follows `include` and `cluster.profile` from file to file into one `Tree`; the values are left to `document`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios.mistakes import Mistakes, key_text, toml_text
from scenarios.shelf import profile_file, profile_names
from scenarios.tree import KeyPath, Tree, read_toml

PROFILE_KEYS = ("description", "cluster")


def read_tree(file: str) -> Mistakes:
    """Everything that a scenario file says, with what it includes and its profile laid under.

    Raises:
        ScenarioError: the file itself cannot be read.
    """
    mistakes = Mistakes(Tree(root=file))
    reader = _Reader(mistakes=mistakes)
    reader.read(file)
    reader.read_profile()
    return mistakes


def read_profile_tree(name: str) -> Mistakes:
    """What a profile says, by its name or its path; with a mistake that names the known ones when there is none."""
    mistakes = Mistakes(Tree(root=name))
    file = name if name.endswith(".toml") else profile_file(name)
    if file is None:
        mistakes.unreadable(f"profile = {toml_text(name)}: expected {_named()}")
    else:
        _Reader(mistakes=mistakes, in_profile=True).read(file)
    return mistakes


@dataclass(slots=True, kw_only=True)
class _Reader:
    mistakes: Mistakes
    in_profile: bool = False
    chain: list[str] = field(default_factory=list)  # the files that are being read, each included by the one before

    def read(self, file: str) -> None:
        """Lay a file, then what it includes, under what is there."""
        try:
            values = read_toml(file)
        except ValueError as error:
            self.mistakes.unreadable(str(error))
            return
        included = values.pop("include", [])
        if self.in_profile:
            self._check_profile(values, file)
        self.mistakes.tree.lay_under(values, _shown(file))
        self.chain.append(file)
        self._read_included(file, included)
        self.chain.pop()

    def read_profile(self) -> None:
        """Lay the cluster's profile under everything, by its name or its path."""
        cluster = self.mistakes.tree.values.get("cluster")
        name = cluster.get("profile") if isinstance(cluster, dict) else None
        if not isinstance(name, str):
            return
        origin = self.mistakes.tree.origin(("cluster", "profile"))
        file = os.path.join(os.path.dirname(origin), name) if name.endswith(".toml") else profile_file(name)
        if file is None or not os.path.isfile(file):
            self.mistakes.tree.complete = False
            self.mistakes.add(("cluster", "profile"), f"{file} to be a file" if file else _named())
            return
        self.in_profile = True
        self.read(os.path.normpath(file))

    def _read_included(self, file: str, included: object) -> None:
        single = not isinstance(included, list)
        names: list[object] = included if isinstance(included, list) else [included]
        for index in reversed(range(len(names))):
            path: KeyPath = ("include",) if single else ("include", index)
            self._read_one(file, path, names[index])

    def _read_one(self, file: str, path: KeyPath, name: object) -> None:
        target = os.path.normpath(os.path.join(os.path.dirname(file), name)) if isinstance(name, str) else ""
        chain = [*self.chain, target]
        if not isinstance(name, str):
            self._complain(file, path, name, "a path relative to this file")
        elif not os.path.isfile(target):
            self._complain(file, path, name, f"{target} to be a file")
        elif any(os.path.samefile(target, seen) for seen in self.chain):
            self._complain(file, path, name, f"no cycle, but {' includes '.join(map(_shown, chain))}")
        else:
            self.read(target)

    def _complain(self, file: str, path: KeyPath, value: object, expected: str) -> None:
        self.mistakes.unreadable(f"{_shown(file)}: {key_text(path)} = {toml_text(value)}: expected {expected}")

    def _check_profile(self, values: dict[str, Any], file: str) -> None:
        for key in [key for key in values if key not in PROFILE_KEYS]:
            known = ", ".join(PROFILE_KEYS)
            text = toml_text(values.pop(key))
            self.mistakes.say(f"{_shown(file)}: {key_text((key,))} = {text}: unknown key; expected one of {known}")
        values.pop("description", None)  # the profile's, not the scenario's
        cluster = values.get("cluster")
        if isinstance(cluster, dict) and "profile" in cluster:
            text = toml_text(cluster.pop("profile"))
            self.mistakes.say(f"{_shown(file)}: cluster.profile = {text}: expected no profile within a profile")


def _named() -> str:
    return f"one of {', '.join(profile_names())}, or a path that ends in .toml"


def _shown(file: str) -> str:
    """A path as people know it: a ready profile by its file's name alone, wherever this package is installed."""
    path = Path(file)
    return path.name if profile_file(path.stem) == file else file

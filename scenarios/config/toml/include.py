"""Reads a scenario file with its `include`, `set` and `cluster.profile` into one `Tree`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios.config.catalogue import expected_profile, profile_file, profile_names, scenario_file
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.toml.job.failure_profile import lay_failures_under
from scenarios.config.toml.mistakes import Mistakes, key_text, path_text, toml_text
from scenarios.config.toml.table_file.entries import counts_tables, names_tables, put_alike, put_table_file
from scenarios.config.toml.tree import TOO_DEEP, KeyPath, Tree, leaves, read_toml, too_deep

SET = "set"
GIVEN_STEP = "given_step"  # the program of a file with job.step that names none
PROFILE_KEYS = ("description", "cluster", "measured")
LONGEST_CHAIN = 64  # files, each included by the previous one


def read_tree(file: str, over: Overrides | None = None) -> Mistakes:
    """Read a scenario file with its includes and profile laid under; apply its `set`, then `over`.

    Raises:
        ScenarioError: the file itself cannot be read.
    """
    mistakes = Mistakes(Tree(root=file))
    reader = _IncludeReader(mistakes=mistakes)
    reader.read(file)
    layers = [*_set_by_files(mistakes), over or Overrides()]
    # All other values count the tables that there are in the end.
    for decides, put in ((names_tables, put_table_file), (counts_tables, put_alike)):
        for layer in layers:
            layer.put_if(decides, mistakes)
        put(mistakes)
    for layer in layers:
        layer.put_early(mistakes.tree)
    reader.read_profile()
    lay_failures_under(mistakes)
    for layer in layers:
        layer.put_late(mistakes)
    job = mistakes.tree.values.get("job")
    if isinstance(job, dict) and "step" in job:
        mistakes.tree.lay_under({"program": GIVEN_STEP}, file)
    return mistakes


def _set_by_files(mistakes: Mistakes) -> list[Overrides]:
    """Remove `set` from the tree, and return its values by file; paths are relative to that file."""
    tree = mistakes.tree
    values = tree.values.get(SET)
    if values is not None and not isinstance(values, dict):
        mistakes.add((SET,), 'a table of values by their keys\' paths, such as "cluster.hosts" = 8')
        values = {}
    tree.values.pop(SET, None)
    by_file: dict[str, dict[str, object]] = {}
    for key, value in (values or {}).items():
        by_file.setdefault(tree.origin((SET, key)), {})[key] = value
    return [Overrides(each, file) for file, each in by_file.items()]


def read_profile_tree(name: str) -> Mistakes:
    """Read a profile given by name or path; an unknown name is a mistake that lists the known ones."""
    mistakes = Mistakes(Tree(root=name))
    file = name if name.endswith(".toml") else profile_file(name)
    if file is None:
        mistakes.unusable(f"profile = {toml_text(name)}: expected {expected_profile(name, profile_names())}")
    else:
        _IncludeReader(mistakes=mistakes, in_profile=True).read(file)
    return mistakes


@dataclass(slots=True, kw_only=True)
class _IncludeReader:
    mistakes: Mistakes
    in_profile: bool = False
    chain: list[str] = field(default_factory=list)  # the files being read, each included by the previous one
    done: set[str] = field(default_factory=set)  # all files read so far: laid under again, they would change nothing

    def read(self, file: str) -> None:
        """Add the values of a file, then of the files that it includes, where the tree has no value yet."""
        self.done.add(os.path.abspath(file))
        try:
            values = read_toml(file)
        except ValueError as error:
            self._give_up(str(error))
            return
        if (key := too_deep(values)) is not None:
            self._give_up(f"{_show_path(file)}: {key_text((key,))}: {TOO_DEEP}")
            return
        included = values.pop("include", [])
        if self.in_profile:
            self._check_profile(values, file)
        if "measured" in values and not self.in_profile:
            self._complain(file, ("measured",), values.pop("measured"), "nothing measured outside a profile")
        self.mistakes.tree.lay_under(values, _show_path(file))
        self.chain.append(file)
        self._read_included(file, included)
        self.chain.pop()

    def read_profile(self) -> None:
        """Lay the cluster's profile, given by name or path, under everything."""
        cluster = self.mistakes.tree.values.get("cluster")
        if not isinstance(cluster, dict) or "profile" not in cluster:
            return
        file = self._profile_file(cluster["profile"])
        if file is None:
            self.mistakes.tree.lost.append(("cluster",))
            return
        self.mistakes.tree.beside_profile, self.mistakes.tree.profile = list(leaves(cluster)), file
        self.in_profile = True
        self.done.clear()  # a file laid under as a profile is checked as a profile
        self.read(file)

    def _profile_file(self, name: object) -> str | None:
        """Return the file of a profile; None if the name is unusable, which is added as a mistake."""
        path = ("cluster", "profile")
        if not isinstance(name, str) or not name.strip():
            return None  # `document` reports it
        origin = self.mistakes.tree.origin(path)
        file = os.path.join(os.path.dirname(origin), name) if name.endswith(".toml") else profile_file(name)
        if file is None or not os.path.isfile(file):
            self.mistakes.add(
                path, f"{path_text(file)} to be a file" if file else expected_profile(name, profile_names())
            )
            return None
        if os.path.isfile(origin) and os.path.samefile(file, origin):
            self.mistakes.add(path, "a file other than this one")
            return None
        return os.path.normpath(file)

    def _read_included(self, file: str, included: object) -> None:
        single = not isinstance(included, list)
        names: list[object] = included if isinstance(included, list) else [included]
        # Later files take precedence, so they are laid under first.
        for index in reversed(range(len(names))):
            path: KeyPath = ("include",) if single else ("include", index)
            self._read_one(file, path, names[index])

    def _read_one(self, file: str, path: KeyPath, name: object) -> None:
        target = os.path.normpath(os.path.join(os.path.dirname(file), name)) if isinstance(name, str) else ""
        if isinstance(name, str) and not os.path.isfile(target) and os.path.isfile(ready := scenario_file(name)):
            target = ready
        chain = [*self.chain, target]
        if not isinstance(name, str):
            self._complain(file, path, name, "a path relative to this file")
        elif not os.path.isfile(target):
            self._complain(file, path, name, f"{path_text(target)} to be a file")
        elif any(os.path.samefile(target, seen) for seen in self.chain):
            self._complain(file, path, name, f"no cycle, but {' includes '.join(map(_show_path, chain))}")
        elif len(chain) > LONGEST_CHAIN:
            self._complain(file, path, name, f"at most {LONGEST_CHAIN} files, each included by the one before")
        elif os.path.abspath(target) not in self.done:
            self.read(target)

    def _complain(self, file: str, path: KeyPath, value: object, expected: str) -> None:
        self._give_up(f"{_show_path(file)}: {key_text(path)} = {toml_text(value)}: expected {expected}")

    def _give_up(self, sentence: str) -> None:
        """Report that a file is unusable. A profile can supply only the cluster, any other file everything."""
        self.mistakes.unusable(sentence, lost=("cluster",) if self.in_profile else ())

    def _check_profile(self, values: dict[str, Any], file: str) -> None:
        for key in [key for key in values if key not in PROFILE_KEYS]:
            known = ", ".join(PROFILE_KEYS)
            text = toml_text(values.pop(key))
            self._give_up(f"{_show_path(file)}: {key_text((key,))} = {text}: unknown key; expected one of {known}")
        values.pop("description", None)  # describes the profile, not the scenario
        cluster = values.get("cluster", {})
        if not isinstance(cluster, dict):
            self._give_up(f"{_show_path(file)}: cluster = {toml_text(values.pop('cluster'))}: expected a table")
        elif "profile" in cluster:
            text = toml_text(cluster.pop("profile"))
            self._give_up(f"{_show_path(file)}: cluster.profile = {text}: expected no profile within a profile")


def _show_path(file: str) -> str:
    """Return a path as users know it: for a ready profile the file's name, wherever this package is installed."""
    path = Path(file)
    return path.name if profile_file(path.stem) == file else file

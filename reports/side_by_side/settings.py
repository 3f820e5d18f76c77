"""Compares the settings of runs key by key; pure functions of their scenarios and metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from reports.run import Run
from reports.store.columns import fixed
from reports.terminal.headline import WORLDS

SETTINGS = {**dict.fromkeys(["run", "key", "pattern", "value"], "str"), "is_base": "bool", "differs": "bool"}
_TABLES = ("model", "tables")

# What a branch says that is not the same where it is there; its keys follow.
_GIVEN = "given"

Key = tuple[str, ...]


def settings(runs: Sequence[tuple[str, Run]]) -> tuple[pd.DataFrame, int]:
    """One row for each key that is not the same in all runs and each run; and how many keys are the same.

    `value` is text, "" where a run has no such key; a branch that not all runs have is one key. `pattern` is the key
    with "*" for a table's name. `differs` is from the base, the first run, of which `is_base` holds. Keys at the top
    come first, versions last.
    """
    leaves = dict(_leaves((), [_tree(run) for _, run in runs]))
    unlike = {key: values for key, values in leaves.items() if len(set(values)) > 1}
    rows = [
        (name, ".".join(key), _pattern(key), value, at == 0, value != values[0])
        for key, values in sorted(unlike.items(), key=lambda item: (item[0][0] == "versions", len(item[0])))
        for at, ((name, _), value) in enumerate(zip(runs, values, strict=True))
    ]
    columns = {name: [row[at] for row in rows] for at, name in enumerate(SETTINGS)}
    return fixed(columns, SETTINGS), len(leaves) - len(unlike)


def _tree(run: Run) -> Any:
    info = run.info
    about = {"world": WORLDS.get(info.world, info.world), "world_size": info.world_size, "played_on": info.played_on}
    scenario = {key: value for key, value in info.scenario.items() if key != "path"}
    return _named({**about, **scenario, "seed": info.seed, "versions": info.versions})


def _named(value: Any) -> Any:
    """Things in lists by their names, where they have any; without what is not said."""
    if isinstance(value, Mapping):
        return {str(key): _named(one) for key, one in value.items() if one not in (None, "")}
    if isinstance(value, list) and value and all(isinstance(one, Mapping) and "name" in one for one in value):
        return {str(one["name"]): _named({key: part for key, part in one.items() if key != "name"}) for one in value}
    return value


def _leaves(key: Key, trees: Sequence[Any]) -> Iterator[tuple[Key, list[str]]]:
    said = [tree for tree in trees if tree is not None]
    if not all(isinstance(tree, Mapping) for tree in said):
        yield key, ["" if tree is None else _words(tree) for tree in trees]
        return
    below = [
        leaf
        for name in dict.fromkeys(name for tree in said for name in tree)
        for leaf in _leaves((*key, name), [None if tree is None else tree.get(name) for tree in trees])
    ]
    if len(said) == len(trees):
        yield from below
        return
    # A branch that some runs lack is one key; what it holds matters where the others differ in it.
    unlike = [(place, values) for place, values in below if len({value for value in values if value}) > 1]
    yield key, ["" if tree is None else _GIVEN if unlike else _words(tree) for tree in trees]
    yield from unlike


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return value if isinstance(value, str) else json.dumps(value)


def _pattern(key: Key) -> str:
    is_of_table = key[:2] == _TABLES and len(key) > 3
    return ".".join((*_TABLES, "*", *key[3:]) if is_of_table else key)

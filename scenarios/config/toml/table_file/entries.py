"""Puts a recommender's tables into a scenario's tree, one entry each, before they are read and checked.

`model.tables` may name a table file, and an entry with a `count` stands for several tables alike. Nothing after this
knows: indices, digests and run folders are those of the same tables, written one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scenarios.config.toml.look import named_file
from scenarios.config.toml.mistakes import Mistakes, key_text
from scenarios.config.toml.tree import KeyPath, TableEntry
from scenarios.config.toml.values import MOST_ALIKE

TABLES: KeyPath = ("model", "tables")
COUNT = "count"


def names_tables(path: KeyPath, value: object) -> bool:
    """Return whether a value in the scenario's place gives all tables: a file's name, or an array with a `count`."""
    is_counting = isinstance(value, list) and any(map(_count, value))
    return path == TABLES and (isinstance(value, str) or is_counting)


def counts_tables(path: KeyPath, value: object) -> bool:
    """Return whether a value in the scenario's place says how many tables an entry stands for."""
    return path[: len(TABLES)] == TABLES and path[-1] == COUNT


def put_table_file(mistakes: Mistakes) -> None:
    """Put the tables of the file that `model.tables` names in its place, if it names one."""
    tree = mistakes.tree
    model = tree.values.get("model")
    named = model.get("tables") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(named, str):
        return
    from scenarios.config.toml.table_file.read import read_tables  # noqa: PLC0415 - most scenarios do without

    path = named_file(mistakes, TABLES, named)
    try:
        file = read_tables(path)
    except ValueError as error:
        mistakes.add(TABLES, str(error))
    else:
        for sentence in file.mistakes:
            mistakes.say(sentence)
        if not file.mistakes:
            origin = str(path)
            tree.put_entries(TABLES, [(origin, entry, values) for entry, values in file.tables])
            return
    tree.lost.append(TABLES)
    del model["tables"]


def put_alike(mistakes: Mistakes) -> None:
    """Replace each entry with a sound `count` by as many tables; a `count` that is none is left, and reported."""
    tree = mistakes.tree
    model = tree.values.get("model")
    tables = model.get("tables") if isinstance(model, dict) else None
    if not isinstance(tables, list) or not [one for one in tables if isinstance(one, dict) and COUNT in one]:
        return
    entries = []
    for index, table in enumerate(tables):
        path = (*TABLES, index)
        entry = tree.entries.get(path) or TableEntry(key_text(path))
        several = _alike(table, count) if (count := _count(table)) else [table]
        entries += [(tree.origin(path), entry, one) for one in several]
    tree.put_entries(TABLES, entries)


def _count(table: object) -> int:
    """Return the number of tables for which an entry stands; 0 if it has no sound `count`."""
    count = table.get(COUNT) if isinstance(table, dict) else None
    return count if type(count) is int and 1 <= count <= MOST_ALIKE else 0


def _alike(table: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """Yield tables alike, whose names, and those of their features, end in _0, _1, ..."""
    for number in range(count):
        features = table.get("features")
        one = {key: value for key, value in table.items() if key != COUNT} | _name(table, number)
        if isinstance(features, list):
            one["features"] = [each | _name(each, number) if isinstance(each, dict) else each for each in features]
        yield one


def _name(values: dict[str, Any], number: int) -> dict[str, str]:
    name = values.get("name")
    return {"name": f"{name}_{number}"} if isinstance(name, str) else {}

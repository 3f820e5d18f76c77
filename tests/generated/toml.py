"""Scenario trees as TOML text, and places in such trees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

QUANTITY = re.compile(r"(\d+(?:\.\d+)?) ?([^\d.]+)")


def scale(text: str, factor: float) -> str:
    """A quantity such as "400 Gbit/s" taken so many times."""
    found = QUANTITY.fullmatch(text)
    assert found, f"{text} is no quantity"
    return f"{float(found[1]) * factor:.12g} {found[2]}"


def paths(tree: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in the tree but the root, and what is there."""
    if where:
        yield where, tree
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from paths(value, (*where, key))


def put(tree: Any, where: tuple[Any, ...], value: Any) -> None:
    """Put the value there, if there is such a place."""
    for key in where[:-1]:
        if isinstance(tree, dict) and isinstance(key, str):
            tree = tree.setdefault(key, {})
        elif isinstance(tree, list) and isinstance(key, int) and key < len(tree):
            tree = tree[key]
        else:
            return
    last = where[-1]
    if (isinstance(tree, dict) and isinstance(last, str)) or (isinstance(tree, list) and last in range(len(tree))):
        tree[last] = value


def drop(tree: Any, where: tuple[Any, ...]) -> None:
    """Remove what is there."""
    for key in where[:-1]:
        tree = tree[key]
    del tree[where[-1]]


def toml_file(tree: Mapping[str, Any]) -> str:
    """The tree as a file, a line for each of its keys."""
    return "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in tree.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value)
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{_key(key)} = {_toml(one)}' for key, one in value.items())}}}"
        case _:
            return repr(value)

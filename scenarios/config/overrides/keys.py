"""Splits a key's path, such as `model.tables[3].sharding`, into names and indices; `[*]` is every index."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scenarios.config.toml.tree import KeyPath, Tree

EVERY = "[*]"
_NAME = r"[A-Za-z0-9_-]+"
_INDEX = r"\[(?:\d+|\*)\]"
_WHOLE = re.compile(rf"{_NAME}(?:{_INDEX})*(?:\.{_NAME}(?:{_INDEX})*)*", re.ASCII)
_PART = re.compile(rf"({_NAME})|\[(\d+)\]|(\[\*\])", re.ASCII)
EXPECTED_KEY = "a key's path, such as cluster.hosts or model.tables[3].rows"


def path_of(key: str) -> KeyPath | None:
    """`model.tables[3].rows` as a path, with `EVERY` for `[*]`; None if it is no path."""
    if not _WHOLE.fullmatch(key):
        return None
    return tuple(int(index) if index else name or every for name, index, every in _PART.findall(key))


def places(tree: Tree, path: KeyPath) -> Iterator[KeyPath]:
    """The path once for each item of the arrays in which it says `EVERY`; none where there is no such array."""
    at = next((at for at, key in enumerate(path) if key == EVERY), None)
    if at is None:
        yield path
        return
    try:
        items = tree.at(path[:at])
    except (LookupError, TypeError):
        return
    for index in range(len(items) if isinstance(items, list) else 0):
        yield from places(tree, (*path[:at], index, *path[at + 1 :]))

"""Splits a key's path, such as `model.tables[3].sharding`, into names, indices and index sets (`[*]`, `[0-7,12]`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scenarios.config.toml.tree import KeyPath, Tree

EVERY = "[*]"
_NAME = r"[A-Za-z0-9_-]+"
_RANGE = r"\d+(?:-\d+)?"
_INDEX = rf"\[(?:\*|{_RANGE}(?:,{_RANGE})*)\]"
_WHOLE = re.compile(rf"{_NAME}(?:{_INDEX})*(?:\.{_NAME}(?:{_INDEX})*)*", re.ASCII)
_PART = re.compile(rf"({_NAME})|\[(\d+)\]|({_INDEX})", re.ASCII)
EXPECTED_KEY = "a key's path, such as cluster.hosts or model.tables[3].rows"


def path_of(key: str) -> KeyPath | None:
    """Parse `model.tables[3].rows` into a path, leaving index sets as text; return None if `key` is no path."""
    if not _WHOLE.fullmatch(key):
        return None
    path = tuple(int(index) if index else name or several for name, index, several in _PART.findall(key))
    several = [part for part in path if isinstance(part, str) and is_several(part) and part != EVERY]
    return None if any(last < first for part in several for first, last in _ranges(part)) else path


def is_several(part: str | int) -> bool:
    """Return whether a part of a path is an index set: `[*]`, or such as `[0-7,12]`."""
    return isinstance(part, str) and part.startswith("[")


def indices_of(part: str, length: int) -> list[int]:
    """Return the indices that an index set selects in an array of `length`, each once; they may lie beyond its end."""
    if part == EVERY:
        return list(range(length))
    found: dict[int, None] = {}
    for first, last in _ranges(part):
        found |= dict.fromkeys(range(first, max(first, min(last, length)) + 1))
    return list(found)


def _ranges(part: str) -> list[tuple[int, int]]:
    """Parse `[0-7,12]` into (0, 7), (12, 12)."""
    ends = [text.partition("-") for text in part.strip("[]").split(",")]
    return [(int(first), int(last or first)) for first, _, last in ends]


def places(tree: Tree, path: KeyPath) -> Iterator[KeyPath]:
    """Yield `path` once for each array item that its index sets and names select; none if there is no such item."""
    for at, part in enumerate(path):
        try:
            items = tree.at(path[:at])
        except (LookupError, TypeError):
            items = None
        if isinstance(part, str) and (is_several(part) or isinstance(items, list)):
            for index in items_of(part, items) if isinstance(items, list) else ():
                yield from places(tree, (*path[:at], index, *path[at + 1 :]))
            return
    yield path


def items_of(part: str, items: list[Any]) -> list[int]:
    """Return the indices of an array's items that an index set, or an item's name, selects."""
    if is_several(part):
        return indices_of(part, len(items))
    return [index for index, item in enumerate(items) if isinstance(item, dict) and item.get("name") == part]


def names_of(items: list[Any]) -> list[str]:
    """Return the names of an array's tables."""
    return [item["name"] for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]

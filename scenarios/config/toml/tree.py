"""A scenario's TOML as one tree of plain values that remember their files; `document` interprets the values.

A file's own values take precedence, and its includes are laid under them: tables merge key by key, all other values are
kept. Keys therefore stay in the order of the first file.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from scenarios import given_file
from scenarios.config.catalogue import expected_scenario

KeyPath = tuple[str | int, ...]

_MOST_BYTES = 64 << 20  # a table of 100,000 rows takes 10 MB
DEEPEST = 32  # far more than any scenario needs, and far less than Python's stack holds
TOO_DEEP = f"expected tables and arrays nested at most {DEEPEST} deep"


@dataclass(frozen=True, slots=True)
class TableEntry:
    """What an array's item comes from, as users call it: `line 7` of a file with these columns by key, or an entry."""

    called: str
    columns: Mapping[str, str] | None = None


@dataclass(slots=True, kw_only=True)
class Tree:
    """A tree of plain values, with the file that each comes from.

    Attributes:
        origins: the file of the root of each subtree that a file added; values below have the same origin.
        entries: where items of arrays stand that are not items of their file; each is an origin's root as well.
        lost: tables with parts in an unusable file, so that their keys are not reported missing; () is the whole tree.
        beside_profile: the keys of the cluster that do not come from its profile.
        within_profile: the keys of the cluster that are arrays of its profile with other parts, or with more.
        profile: the profile's file.
    """

    root: str
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    entries: dict[KeyPath, TableEntry] = field(default_factory=dict)
    lost: list[KeyPath] = field(default_factory=list)
    beside_profile: list[KeyPath] = field(default_factory=list)
    within_profile: list[KeyPath] = field(default_factory=list)
    profile: str = ""

    def lay_under(self, values: Mapping[str, Any], file: str) -> None:
        """Add the values that the tree does not have yet."""
        self._lay_under(self.values, values, file, ())

    def put(self, path: KeyPath, value: object, origin: str) -> bool:
        """Replace one value, creating absent tables; return False if `path` does not exist and cannot be created.

        A value on the way that is neither table nor array is left for checks to report, and arrays are not extended.
        """
        target: Any = self.values
        for at, key in enumerate(path[:-1], 1):
            if isinstance(key, str) and isinstance(target, dict):
                if key not in target:
                    if any(isinstance(below, int) for below in path[at:]):
                        return False  # an array of the profile may still be laid under
                    self.origins[path[:at]] = origin
                target = target.setdefault(key, {})
            elif isinstance(key, int) and isinstance(target, list) and key < len(target):
                target = target[key]
            else:
                return False
        last = path[-1]
        if isinstance(last, str) != isinstance(target, dict):
            return False
        if isinstance(last, int) and not (isinstance(target, list) and last < len(target)):
            return False
        has_parts = isinstance(last, int) or isinstance(target.get(last), dict | list)
        target[last] = value
        # The new value replaces a whole subtree, whose parts may have come from other files.
        for known in (self.origins, self.entries) if has_parts else ():
            for below in [below for below in known if below[: len(path)] == path]:
                del known[below]
        self.origins[path] = origin
        return True

    def put_entries(self, path: KeyPath, entries: Sequence[tuple[str, TableEntry, object]]) -> None:
        """Replace the array at `path` by these items, each with its file and what it is called there."""
        self.put(path, [value for _, _, value in entries], self.origin(path))
        for index, (origin, entry, _) in enumerate(entries):
            self.origins[*path, index], self.entries[*path, index] = origin, entry

    def append(self, path: KeyPath, value: object, origin: str) -> bool:
        """Append a value to the array at `path`, or make one; return False if there is no such place."""
        try:
            found = self.at(path)
        except (LookupError, TypeError):
            return self.put(path, [value], origin)
        before, own = (found if isinstance(found, list) else [found]), self.origin(path)
        if not self.put(path, [*before, value], own):
            return False
        self.origins[(*path, len(before))] = origin
        return True

    def origin(self, path: KeyPath) -> str:
        """Return the file in which the value at `path` stands; if absent, the file of its table."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.root

    def entry(self, path: KeyPath) -> tuple[TableEntry, KeyPath] | None:
        """Return the entry in which the value at `path` stands, and its path there; None if it stands in no entry."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                entry = self.entries.get(path[:length])
                return None if entry is None else (entry, path[length:])
        return None

    def at(self, path: KeyPath) -> object:
        """Return the value at `path`; LookupError if there is none, TypeError if a value above it has no keys."""
        value: Any = self.values
        for key in path:
            value = value[key]
        return value

    def is_whole(self, path: KeyPath) -> bool:
        """Return whether a value that is absent at `path` cannot have been in a lost file."""
        return not any(path[: len(above)] == above for above in self.lost)

    def position(self, path: KeyPath) -> tuple[int, ...]:
        """Return a sort key for the order of the file; an absent key comes last in its table."""
        value: Any = self.values
        places = []
        for key in path:
            if isinstance(value, dict):
                places.append(list(value).index(key) if key in value else len(value))
            else:
                places.append(key if isinstance(key, int) else 0)
            try:
                value = value[key]
            except (LookupError, TypeError):
                break
        return tuple(places)

    def _lay_under(self, target: dict[str, Any], values: Mapping[str, Any], file: str, above: KeyPath) -> None:
        for key, value in values.items():
            path = (*above, key)
            if key not in target:
                target[key] = {} if isinstance(value, Mapping) else value
                self.origins[path] = file
            if isinstance(value, Mapping) and isinstance(target[key], dict):
                self._lay_under(target[key], value, file, path)


def leaves(values: Mapping[str, Any], above: KeyPath = ()) -> Iterable[KeyPath]:
    """Return the paths of all values that are not tables."""
    for key, value in values.items():
        yield from leaves(value, (*above, key)) if isinstance(value, Mapping) else [(*above, key)]


def read_toml(file: str) -> dict[str, Any]:
    """Read one file's values.

    Raises:
        ValueError: the file cannot be read, or is no TOML; the message begins with the file's name.
    """
    try:
        text = given_file.text(file, _MOST_BYTES)
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; expected {expected_scenario(file)}") from None
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}; expected a scenario in TOML") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: byte {error.start}: expected UTF-8 text") from None
    except UnicodeError as error:
        raise ValueError(f"{file}: expected {error}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {_place(str(error))}") from None
    except ValueError:
        raise ValueError(f"{file}: {_long_number(text)}") from None
    except RecursionError:
        raise ValueError(f"{file}: {TOO_DEEP}") from None


def too_deep(values: Mapping[str, Any]) -> str | None:
    """Return the first key whose value is nested deeper than `DEEPEST`, or None; other code may then use recursion."""
    for key, value in values.items():
        level: list[Any] = [value]
        for _ in range(DEEPEST):
            tables = [table.values() for table in level if isinstance(table, Mapping)]
            level = [*chain(*tables, *(array for array in level if isinstance(array, list)))]
            if not level:
                break
        else:
            return key
    return None


def _place(message: str) -> str:
    """Move the place in tomllib's `What (at line 3, column 5)` to the front."""
    what, _, place = message.rpartition(" (at ")
    return f"{place.rstrip(')')}: expected valid TOML, found: {what}"


def _long_number(text: str) -> str:
    """Describe a number too long for Python, whose error tomllib passes on without a place."""
    found = re.search(rf"[0-9](?:_?[0-9]){{{sys.get_int_max_str_digits()},}}", text)
    if found is None:
        return "expected valid TOML"
    line, column = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
    digits = len(found[0].replace("_", ""))
    return f"line {line}, column {column}: expected valid TOML, found: A number of {digits} digits"

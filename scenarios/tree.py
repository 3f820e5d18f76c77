"""A scenario's TOML as one tree of plain values, each of which remembers its file; what they mean is for `document`.

A file's own values come first, and what it includes is laid under them: tables merge key by key, everything else is
kept as it is. So the keys stay in the order in which a reader of the first file meets them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KeyPath = tuple[str | int, ...]


@dataclass(slots=True, kw_only=True)
class Tree:
    """`origins` holds the file of each subtree's root that a file brought; what lies below has the same origin.

    `complete` is false when a file could not be read, so that nobody calls its keys missing.
    """

    root: str
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    complete: bool = True

    def lay_under(self, values: Mapping[str, Any], file: str) -> None:
        """Add what is not there yet."""
        self._lay_under(self.values, values, file, ())

    def put(self, table: str, key: str, value: object, origin: str) -> None:
        """Replace one value, in a table that is made if absent; a table that is none stays for others to report."""
        target = self.values.setdefault(table, {})
        if isinstance(target, dict):
            target[key] = value
            self.origins[table, key] = origin

    def origin(self, path: KeyPath) -> str:
        """The file in which the value at `path` stands, or in which its table does, when it is absent."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.root

    def at(self, path: KeyPath) -> object:
        """The value at `path`; LookupError when there is none, TypeError when something above it has no keys."""
        value: Any = self.values
        for key in path:
            value = value[key]
        return value

    def position(self, path: KeyPath) -> tuple[int, ...]:
        """A sort key: the order of the file, with what is absent at the end of its table."""
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


def read_toml(file: str) -> dict[str, Any]:
    """One file's values.

    Raises:
        ValueError: `FILE: what is wrong`, for a file that cannot be read or that is no TOML.
    """
    try:
        return tomllib.loads(Path(file).read_bytes().decode())
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; expected a scenario in TOML") from None
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}; expected a scenario in TOML") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: byte {error.start}: expected UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {_place(str(error))}") from None


def _place(message: str) -> str:
    """tomllib's `What (at line 3, column 5)` with the place first."""
    what, _, place = message.rpartition(" (at ")
    return f"{place.rstrip(')')}: expected valid TOML, found: {what}"

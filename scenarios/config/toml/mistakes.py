"""Collects a user's mistakes, one sentence each, in the order of the file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

from scenarios.config.toml.tree import KeyPath, Tree
from scenarios.seam.errors import ScenarioError

UNKNOWN = "unknown key"
SET = "--set "  # prefix of the origin of command-line values without an option of their own
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60  # characters of a value in a sentence
_LONGEST_DECIMAL = 1000  # bits of an integer: Python refuses to write very long ones as decimals

# Keys of earlier versions, and their present names.
_RENAMED: Mapping[KeyPath, str] = {("cluster", "slow"): "cluster.faults, which has the same keys"}


class Mistakes:
    """The mistakes found in one tree. A value that a mistake names is unsound: no check may use it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._first: list[str] = []  # of whole files
        self._found: list[tuple[tuple[int, ...], str]] = []
        self._paths: set[KeyPath] = set()
        self._unknown: list[KeyPath] = []

    def say(self, sentence: str) -> None:
        """Add a mistake that concerns no value of the tree; these come first, without repetitions."""
        if sentence not in self._first:
            self._first.append(sentence)

    def unusable(self, sentence: str, lost: KeyPath = ()) -> None:
        """Add a mistake about an unusable file; from now on no key of the table at `lost` is reported missing."""
        self.tree.lost.append(lost)
        self.say(sentence)

    def add(self, path: KeyPath, expected: str) -> None:
        """Add a mistake: the value at `path` is not what was expected."""
        self._note(path, f"{self._place(path)} = {toml_text(self.tree.at(path))}: expected {expected}")

    def add_unknown(self, path: KeyPath, known: list[str]) -> None:
        """Add a mistake: the key at `path` is unknown there."""
        value = toml_text(self.tree.at(path))
        self._unknown.append(path)
        if path in _RENAMED:
            self._note(path, f"{self._place(path)} = {value}: renamed; expected {_RENAMED[path]}")
            return
        self._note(path, f"{self._place(path)} = {value}: {UNKNOWN}; expected one of {', '.join(known)}")

    def missing(self, path: KeyPath, expected: str) -> None:
        """Add a mistake for a required key, unless it is present, misspelt, or possibly in a lost file."""
        try:
            above = self.tree.at(path[:-1])
        except (LookupError, TypeError):
            return
        if isinstance(above, dict) and path[-1] not in above and self.tree.is_whole(path) and not self._misspelt(path):
            self._note(path, f"{self._place(path)}: missing; expected {expected}")

    def sound(self, *paths: KeyPath) -> bool:
        """Return whether no mistake names one of these values, a part of it or the table around it."""
        return not self._paths or not any(
            found[: len(path)] == path or path[: len(found)] == found for path in paths for found in self._paths
        )

    def sentences(self) -> list[str]:
        """Return all mistakes: of whole files first, then in the order of the file."""
        ordered = sorted(self._found, key=lambda found: found[0])
        # An entry that stands for several tables has the mistakes of each.
        return [*self._first, *dict.fromkeys(sentence for _, sentence in ordered)]

    def raise_any(self) -> None:
        """Raise ScenarioError with all mistakes, if there are any."""
        if sentences := self.sentences():
            raise ScenarioError(sentences)

    def _note(self, path: KeyPath, sentence: str) -> None:
        self._paths.add(path)
        self._found.append((self.tree.position(path), sentence))

    def _misspelt(self, path: KeyPath) -> bool:
        strangers = [str(unknown[-1]) for unknown in self._unknown if unknown[:-1] == path[:-1]]
        return bool(get_close_matches(str(path[-1]), strangers))

    def _place(self, path: KeyPath) -> str:
        origin = self.tree.origin(path)
        if origin.startswith(SET):
            return f"{SET}{key_text(path)}"  # the command line may have set a table around it
        return origin if origin.startswith("--") else f"{origin}: {self.name_of(path)}"

    def name_of(self, path: KeyPath) -> str:
        """Return what users call the value at `path` in its file: its key, or a line and a column."""
        entry, rest = self.tree.entry(path) or (None, path)
        if entry is None or entry.columns is None:
            return ".".join(filter(None, (entry.called if entry else "", key_text(rest))))
        column, key = entry.columns.get(str(rest[0]), "") if rest else "", key_text(rest)
        whole = column + key.removeprefix(str(rest[0])) if column else key
        # A column that the file lacks is absent from all of its lines.
        return ": ".join(filter(None, (entry.called if column or not rest else "", whole)))


@contextmanager
def report_mistakes() -> Iterator[None]:
    """Print the sentences of a ScenarioError to stderr and exit with 2, without a traceback."""
    try:
        yield
    except ScenarioError as error:
        print(*error.sentences, sep="\n", file=sys.stderr)
        raise SystemExit(2) from None


def key_text(path: KeyPath) -> str:
    """Format a path as users write it: `model.tables[2].rows`."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{_key(key)}" for key in path]
    return "".join(parts).removeprefix(".")


def toml_text(value: object) -> str:
    """Format a value approximately as TOML does, shortened to `_LONGEST` characters."""
    return _short(_toml(value))


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a file's path as text, quoted if it has unprintable characters such as newlines."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, int) and value.bit_length() > _LONGEST_DECIMAL:
        return hex(value)
    return repr(value) if isinstance(value, str) else str(value)


def _key(key: str) -> str:
    return _short(key if _BARE.fullmatch(key) else repr(key))

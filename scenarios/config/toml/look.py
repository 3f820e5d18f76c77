"""Shared by checks: required keys, keys without effect, and files that a value names."""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios import given_file
from scenarios.config.keys import conditional, declared_keys
from scenarios.config.toml.mistakes import Mistakes, path_text
from scenarios.config.toml.reading import expected_phrase
from scenarios.config.toml.section import Section
from scenarios.config.toml.tree import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A reporter of missing keys and of keys without effect."""

    mistakes: Mistakes

    def need(self, path: KeyPath, section: Section | None, *keys: str) -> None:
        """Add a mistake for each of these keys that is missing in the table at `path`."""
        for key in keys:
            if section is not None and getattr(section, key) is None:
                self.mistakes.missing((*path, key), expected_phrase(type(section), key))

    def refuse(self, path: KeyPath, section: Section, keys: tuple[str, ...], reason: str) -> None:
        """Add a mistake for each of these keys that is set in the table at `path`, where it has no effect."""
        for key in keys:
            if getattr(section, key) is not None:
                self.mistakes.add((*path, key), f"no {key} {reason}")

    def refuse_elsewhere(self, path: KeyPath, section: Any) -> None:
        """Add a mistake for each key of the table at `path`, or inside it, whose `OnlyWith` does not hold."""
        usual = {one.key.name: one.default for one in declared_keys(section.declared_by)}
        for one in conditional(section.declared_by):
            name, value = one.key.name, getattr(section, one.key.name)
            if isinstance(value, list):
                for index, inner in enumerate(value if one.table is not None else ()):
                    self.refuse_elsewhere((*path, name, index), inner)
            elif value is not None and one.table is not None:
                self.refuse_elsewhere((*path, name), value)
            for other, wanted in one.where.items():
                now = getattr(section, other)
                if (usual[other] if now is None else now) not in wanted and self.mistakes.sound((*path, other)):
                    self.refuse(path, section, (name,), f"but with {other} = {' or '.join(map(repr, wanted))}")


def named_file(mistakes: Mistakes, path: KeyPath, name: str) -> Path:
    """Return the file that the value at `path` names, relative to the file in which it stands."""
    return Path(os.path.normpath(os.path.join(os.path.dirname(mistakes.tree.origin(path)), name)))


def utf8_content(path: Path) -> bytes:
    """Return the content of a text file, without a byte order mark.

    Raises:
        ValueError: the path is no file, cannot be read or is not UTF-8; the message is the expected phrase.
    """
    content = content_of(path).removeprefix(codecs.BOM_UTF8)
    if expected := given_file.not_text(content):
        raise ValueError(f"{path_text(path)} to be {expected}")
    try:
        content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path_text(path)} to be UTF-8 text") from None
    return content


def content_of(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ValueError: the path is no file, or cannot be read; the message is the expected phrase.
    """
    try:
        if path.exists() and not path.is_file():  # a folder, or a pipe, whose end may never come
            raise ValueError(f"{path_text(path)} to be a file")
        return given_file.content(path)
    except FileNotFoundError:
        raise ValueError(f"{path_text(path)} to be a file") from None
    except OSError as error:
        raise ValueError(f"{path_text(path)} to be a file that can be read: {error.strerror}") from None

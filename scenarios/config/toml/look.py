"""The few ways in which checks complain."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.schema import expected
from scenarios.config.toml.section import Section
from scenarios.config.toml.tree import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The few ways in which checks complain."""

    mistakes: Mistakes

    def need(self, path: KeyPath, section: Section | None, *keys: str) -> None:
        """These keys of the table at `path` must be there."""
        for key in keys:
            if section is not None and getattr(section, key) is None:
                self.mistakes.missing((*path, key), expected(type(section), key))

    def refuse(self, path: KeyPath, section: Section, keys: tuple[str, ...], reason: str) -> None:
        """These keys of the table at `path` would have no effect, so they must not be there."""
        for key in keys:
            if getattr(section, key) is not None:
                self.mistakes.add((*path, key), f"no {key} {reason}")

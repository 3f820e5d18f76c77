"""The mistakes that a user can make, each one sentence; a mistake of ours is an assertion instead."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any


class ScenarioError(Exception):
    """One or more mistakes in a scenario, each `file: key = value: expected ...`, reported in one go."""

    def __init__(self, sentences: str | Iterable[str]) -> None:
        self.sentences = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        super().__init__("\n".join(self.sentences))


class Note(UserWarning):
    """Something that a user should know of a run: one sentence."""


def show_notes() -> None:
    """From now on show notes as commands do; for entry points."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, Note):
            print(f"note: {message}", file=sys.stderr)
        else:
            others(message, category, *where, **more)

    warnings.showwarning = show


class ProgramError(Exception):
    """A program used a `Rank` wrongly, or the ranks did not fit together: one sentence with ranks and operations."""


class CollectiveError(ProgramError):
    """A collective was called with arguments that do not fit each other, here or on another rank."""


class DeadlockError(ProgramError):
    """No rank can go on: the sentence says which ranks wait, and each for what."""


class RankLostError(ProgramError):
    """A rank of a real run died, raised or never came: the sentence names it."""

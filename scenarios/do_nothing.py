"""A callback that does nothing."""

from __future__ import annotations


def do_nothing(*_: object, **__: object) -> None:
    """Ignore all arguments, and return nothing."""

"""A callback for where one is wanted and nothing is to be done."""

from __future__ import annotations


def do_nothing(*_: object, **__: object) -> None:
    """Take whatever a callback is given."""

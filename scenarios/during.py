"""Attributes that have other values within a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def during(owner: object, **values: object) -> Iterator[None]:
    """Set attributes of `owner` within this context; contexts may be nested."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)

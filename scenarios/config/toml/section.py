"""The base of all sections of a scenario file, and how checked ones are read."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

# Begins the tags of discriminated unions, which stand in pydantic's places but in no file's keys.
TAG = "\0tag:"


def about(description: str) -> Any:
    """A key that may be absent, and what it means."""
    return Field(default=None, description=description)


class Section(BaseModel):
    """One TOML table; `declared_by` is the dataclass whose fields declare its keys."""

    declared_by: ClassVar[Any] = None

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FreeOptions(Section):
    """Values for a program of one's own: what `scenario.options` holds there."""

    model_config = ConfigDict(extra="allow")


def have(value: T | None) -> T:
    """A value that the checks found to be there."""
    assert value is not None
    return value

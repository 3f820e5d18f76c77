"""The base class of all sections of a scenario file."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

# Prefix of the tags of discriminated unions, which occur in pydantic's paths but in no file's keys.
TAG = "\0tag:"


def about(description: str) -> Any:
    """Return the declaration of an optional key with this description."""
    return Field(default=None, description=description)


class Section(BaseModel):
    """One TOML table; `declared_by` is the dataclass whose fields declare its keys."""

    declared_by: ClassVar[Any] = None

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FreeOptions(Section):
    """Values of any keys, for code of your own."""

    model_config = ConfigDict(extra="allow")


def have(value: T | None) -> T:
    """Return a value that the checks have found to be present."""
    assert value is not None
    return value

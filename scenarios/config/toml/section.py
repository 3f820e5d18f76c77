"""The base class of all sections of a scenario file."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class OrFile:
    """Metadata of an array in whose place a file may be named; another file's items stand there when it is read."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"oneOf": [handler(schema), {"type": "string"}]}


def have(value: T | None) -> T:
    """Return a value that the checks have found to be present."""
    assert value is not None
    return value

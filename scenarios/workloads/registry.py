"""What a scenario file can say of the program that it names; of our own programs without loading torch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from scenarios.config.toml.program_spec import FreeOptions, ProgramSpec, Table
from scenarios.config.toml.section import Section
from scenarios.workloads.locate import BUILT_IN, imported, place_of


@lru_cache(maxsize=1)
def built_in() -> dict[str, ProgramSpec]:
    """Our own programs, by name."""
    return {name: _spec(name, ours.factory, imported(ours.spec)) for name, ours in BUILT_IN.items()}


def find(name: str, folder: Path) -> ProgramSpec:
    """The program that a scenario file in `folder` names.

    Raises:
        ValueError: there is none; the message is what was expected instead.
    """
    if name in BUILT_IN:
        return built_in()[name]
    place = place_of(name)
    return _spec(name, place, imported(place, folder))


def _spec(name: str, place: str, found: Any) -> ProgramSpec:
    """What was found, as a program: its own declaration, or one made of a factory and its `Options`."""
    if isinstance(found, ProgramSpec):
        return found
    if not callable(found):
        raise ValueError(f"a function that makes a program of a scenario, but {place} is a {type(found).__name__}")
    section = getattr(found, "Options", None) or FreeOptions
    if not (isinstance(section, type) and issubclass(section, Section)):
        raise ValueError(f"Options that are a Section, but those of {place} are {section!r}")
    options = Table(key="options", section=section, about=f"Values for program '{name}'.")
    is_needed = any(field.is_required() for field in section.model_fields.values())
    return ProgramSpec(
        name=name,
        factory=place,
        needs=options if is_needed else None,
        may=() if is_needed else (options,),
        build=lambda document, mistakes: {"options": options.of(document) or section()},
    )

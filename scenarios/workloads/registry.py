"""Finds what scenario files may contain for the program that they name; loads no torch for built-in programs."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scenarios.config.scenario import UsersCode
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable
from scenarios.config.toml.reading import phrase_of
from scenarios.config.toml.section import FreeOptions
from scenarios.config.toml.sections import Document
from scenarios.workloads.locate import BUILT_IN, import_named, place_of
from scenarios.workloads.options import Shape, shape_of
from scenarios.workloads.step_tables import BUCKETS, COMPRESSION

BATCH_SIZE = "run.batch_size"  # an entry of a program's `reads`: the key is required


@lru_cache(maxsize=1)
def built_in() -> dict[str, ProgramSpec]:
    """Return the built-in programs by name."""
    return {name: _spec(name, place, import_named(place)) for name, place in BUILT_IN.items()}


def find(name: str, folder: Path) -> ProgramSpec:
    """Return the program that a scenario file in `folder` names.

    Raises:
        ValueError: there is none; the message is what was expected instead.
    """
    if name in BUILT_IN:
        return built_in()[name]
    place = place_of(name)
    return _spec(name, place, import_named(place, folder))


def _spec(name: str, place: str, found: Any) -> ProgramSpec:
    """Return the specification of a program: the `ProgramSpec` found, or one made from a factory's attributes."""
    if isinstance(found, ProgramSpec):
        try:
            signature(found.workload).bind(**{table.field: table for table in found.tables})
        except TypeError as error:
            kind = getattr(found.workload, "__qualname__", found.workload)
            raise ValueError(f"a workload with a field for each of its tables, but {kind}: {error}") from None
        return replace(found, name=name)
    if not callable(found):
        raise ValueError(f"a function that makes a program of a scenario, but {place} is a {type(found).__name__}")
    reads = getattr(found, "reads", ())
    own, shape = _own_table(name, found)
    tables = _tables_read(place, reads)

    return ProgramSpec(
        name=name,
        factory=place,
        workload=UsersCode,
        needs=own if shape.is_needed else None,
        may=tables if shape.is_needed else (own, *tables),
        batch_size="required" if BATCH_SIZE in reads else "unused",
        check=lambda document, look: _check_defaults(own, shape, document, look),
    )


def _check_defaults(own: ScenarioTable[Any], shape: Shape, document: Document, look: Look) -> None:
    """Add a mistake if the file has no table of the program's own values, and an empty one is refused."""
    try:
        if own.of(document) is None and not shape.is_needed:
            shape.default()
    except ValidationError as error:
        phrase = phrase_of(error.errors(include_url=False)[0])
        look.mistakes.missing(
            (own.key,), f"a table, because the defaults of {shape.kind.__qualname__} are not {phrase}"
        )


def _own_table(name: str, found: Any) -> tuple[ScenarioTable[Any], Shape]:
    """Return the table of the program's own values, by default `[options]`, and what it accepts."""
    key, kind = getattr(found, "section", "options"), getattr(found, "Options", None) or FreeOptions
    if not (isinstance(key, str) and key.isidentifier()):
        raise ValueError(f"a section that is a name, but {found.__qualname__}.section is {key!r}")
    if key in Document.model_fields or key in _keys_of_ours():
        raise ValueError(f"a section of a name that is not taken, but {found.__qualname__}.section is {key!r}")
    if not isinstance(kind, type):
        raise ValueError(f"Options that are a dataclass or a pydantic model, but those of {name} are {kind!r}")
    shape = shape_of(kind, found if isinstance(found, type) else None)
    about = f"Values for program '{name}'."

    def options(document: Document, mistakes: Mistakes) -> Any:
        given = table.of(document)
        return shape.default() if given is None else given

    table = ScenarioTable(key=key, values=shape.kind, section=shape.hint, about=about, field="options", make=options)
    return table, shape


def _tables_read(place: str, reads: Any) -> tuple[ScenarioTable[Any], ...]:
    """Return the built-in tables that the program reads as well."""
    readable = {table.key: table for table in (BUCKETS, COMPRESSION)}
    known = (*readable, BATCH_SIZE)
    if not isinstance(reads, (tuple, list, set, frozenset)) or not all(one in known for one in reads):
        names = ", ".join(f"'{one}'" for one in known)
        raise ValueError(f"a program whose `reads` are some of {names}, but those of {place} are {reads!r}")
    return tuple(readable[one] for one in reads if one in readable)


def _keys_of_ours() -> set[str]:
    return {table.key for program in built_in().values() for table in program.tables}

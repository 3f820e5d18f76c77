"""The shape of a scenario file, which depends on its program; reads a tree into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable
from scenarios.config.toml.reading import read_section
from scenarios.config.toml.section import FreeOptions, about
from scenarios.config.toml.sections import Document
from scenarios.workloads.locate import import_named, place_of, runs_code
from scenarios.workloads.registry import built_in, find

_OWN = Annotated[str, Field(pattern=r"^[^:]+:[^:]+$")]
_OPTIONS = ScenarioTable(
    key="options",
    values=FreeOptions,
    section=FreeOptions,
    about="Values for a program of your own, which defines their keys and may rename the section.",
)


def read_document(mistakes: Mistakes) -> tuple[Document, ProgramSpec | None]:
    """Return the tree's sound values and the program that they name, if it exists.

    Broken values are added as mistakes. The program is None if no user code may run (`locate.without_code`), unless it
    is built in.
    """
    name = mistakes.tree.values.get("program")
    program: ProgramSpec | None = None
    kind = _document_of_ours()
    if isinstance(name, str) and name in built_in():
        program = built_in()[name]
    elif isinstance(name, str):
        try:
            if runs_code():
                program = find(name, Path(mistakes.tree.origin(("program",))).parent)
            else:
                import_named(place_of(name), Path(mistakes.tree.origin(("program",))).parent)
        except ValueError as error:
            mistakes.add(("program",), str(error))
        if program is not None:
            kind = document_type(program.tables, str)
        else:
            kind = document_type((*_tables_of_ours(), _OPTIONS, *_of_nobody(mistakes.tree.values)), str)
    return read_section(mistakes, kind), program


def _of_nobody(values: dict[str, Any]) -> Iterator[ScenarioTable[Any]]:
    """Yield tables that may belong to a program that was not found, so that they are not reported as unknown."""
    known = {*Document.model_fields, _OPTIONS.key, *(table.key for table in _tables_of_ours())}
    for key, value in values.items():
        if isinstance(value, dict) and key not in known and key.isidentifier():
            yield ScenarioTable(key=key, values=FreeOptions, section=FreeOptions, about="")


def document_type(tables: Iterable[ScenarioTable[Any]], program: Any) -> type[Document]:
    """Return the shape of a file with these tables, whose `program` has this type."""
    meaning = "; ".join(f"'{each.name}': {each.summary}" for each in built_in().values())
    fields: dict[str, Any] = {table.key: (table.section | None, about(table.about)) for table in tables}
    fields["program"] = (program | None, about(f"{meaning}. Required."))
    return create_model("Document", __base__=Document, __doc__=Document.__doc__, **fields)


@lru_cache(maxsize=1)
def editors_document() -> type[Document]:
    """Return the shape of all scenario files, including those with a user's own program."""
    return document_type((*_tables_of_ours(), _OPTIONS), _names_of_ours() | _OWN)


@lru_cache(maxsize=1)
def _document_of_ours() -> type[Document]:
    return document_type(_tables_of_ours(), _names_of_ours())


def _names_of_ours() -> Any:
    return Literal[tuple(built_in())]


def _tables_of_ours() -> tuple[ScenarioTable[Any], ...]:
    """Return the tables of the built-in programs, each once, in the order in which programs name them."""
    return tuple({table.key: table for program in built_in().values() for table in program.tables}.values())


def tables_of(program: ProgramSpec | None) -> tuple[ScenarioTable[Any], ...]:
    """Return the tables that a file may have: those of all built-in programs, or those of the user's own program."""
    return _tables_of_ours() if program is None or program.name in built_in() else program.tables


def foreign_tables(program: ProgramSpec) -> tuple[str, ...]:
    """Return the keys of tables that only other programs read."""
    own = {table.key for table in program.tables}
    return tuple(sorted({table.key for table in _tables_of_ours()} - own))

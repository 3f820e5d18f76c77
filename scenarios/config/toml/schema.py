"""Holds a tree against the document's shape, and prints that shape for editors and people; pydantic stays behind here.

A broken value is named once and then left out, so that everything else can still be read and checked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.section import Section
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.workload.sections import TAGGED


def read_document(mistakes: Mistakes) -> Document:
    """The tree's sound values as a document; what is broken is absent from it and named in `mistakes`."""
    values = copy.deepcopy(mistakes.tree.values)
    sections: dict[int, type[Section]] = {}
    found = _errors(values, sections)
    for error in found if isinstance(found, list) else []:
        _name(mistakes, error, values, sections)
    while isinstance(found, list):
        places = [_path(error) for error in found]
        for place in places:
            _leave_out(values, place)
        found = _errors(values, {})
        assert isinstance(found, Document) or places[0] not in map(_path, found), "what is left out is wrong no more"
    return found


def expected(section: type[Section], key: str) -> str:
    """What a key accepts, as a phrase."""
    try:
        section.model_validate({key: object()})
    except ValidationError as error:
        return _phrase(error.errors(include_url=False)[0])
    raise AssertionError(f"{section.__name__}.{key} accepts anything")


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a scenario file."""
    schema = Document.model_json_schema(schema_generator=_EditorSchema)
    return {"$schema": GenerateJsonSchema.schema_dialect, **_without_titles(schema)}


def reference() -> str:
    """Every key with its description, a Markdown table for each section."""
    schema = json_schema()
    lines: list[str] = []
    for place, node in _tables(schema, schema, ""):
        lines += [f"### {f'`{place}`' if place else 'Top level'}", "", node["description"], ""]
        lines += ["| key | meaning |", "| --- | --- |"]
        lines += [f"| `{key}` | {about['description']} |" for key, about in node["properties"].items()]
        lines.append("")
    return "\n".join(lines)


class _EditorSchema(GenerateJsonSchema):
    """Absent is the only null that TOML has, so no key accepts null, and no default is null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def _errors(values: dict[str, Any], sections: dict[int, type[Section]]) -> Document | list[ErrorDetails]:
    try:
        return Document.model_validate(values, context=sections)
    except ValidationError as error:
        return error.errors(include_url=False)


def _name(mistakes: Mistakes, error: ErrorDetails, values: dict[str, Any], sections: dict[int, type[Section]]) -> None:
    path = _path(error)
    if error["type"] != "extra_forbidden":
        mistakes.add(path, _phrase(error))
        return
    table: Any = values
    for key in path[:-1]:
        table = table[key]
    mistakes.unknown(path, list(sections[id(table)].model_fields))


def _phrase(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "expected":
            return str(context["phrase"])
        case "literal_error":
            return str(context["expected"])
        case "model_type":
            return "a table"
        case "list_type":
            return "an array"
        case "bool_type":
            return "true or false"
    raise AssertionError(f"no phrase for pydantic's {error['type']}: {error['msg']}")


def _path(error: ErrorDetails) -> KeyPath:
    """Where the value stands: without the tag that tells which of its key's types was tried."""
    place = error["loc"]
    is_tagged = place[:2] == ("model", "tables") and len(place) > 4 and place[3] in TAGGED
    return (*place[:4], *place[5:]) if is_tagged else place


def _leave_out(values: dict[str, Any], path: KeyPath) -> None:
    """Forget the value at `path`: an array loses no items, or others would move, so it goes as a whole."""
    table: Any = values
    if len(path) == 3 and path[:2] == ("model", "tables"):
        table["model"]["tables"][path[2]] = {}
        return
    last = (values, "")
    for key in path:
        if isinstance(table, dict):
            last = (table, str(key))
            table = table.get(key)
        elif isinstance(table, list):
            table = table[int(key)]
    last[0].pop(last[1], None)


def _tables(schema: dict[str, Any], node: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each table's place in a file, such as `cluster.gpu` or `model.tables[]`, and its schema."""
    yield place, node
    for key, about in node["properties"].items():
        for inner in (_resolve(schema, option) for option in about.get("oneOf", [about])):
            if "properties" in inner:
                yield from _tables(schema, inner, f"{place}.{key}{'[]' * ('items' in about)}".removeprefix("."))


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    inner = node.get("items", node)
    reference = inner.get("$ref") or next((option["$ref"] for option in inner.get("allOf", [])), None)
    resolved = schema["$defs"][reference.rpartition("/")[2]] if reference else inner
    assert isinstance(resolved, dict)
    return resolved


def _without_titles(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _without_titles(item) for key, item in node.items() if key != "title" or not isinstance(item, str)}

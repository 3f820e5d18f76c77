"""Formats the shape of a scenario file, as a JSON Schema for editors and as tables for readers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from scenarios.config.toml.document import editors_document

_DEFAULT = re.compile(r"(.*\.) (?:Default:? (.*?)(?:; source: (.*))?|Required(.*))\.")
_TITLES = ("key", "meaning", "type", "unit", "default", "source of the default")
_OPTIONAL = ("unit", "source of the default")
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "to below"}
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "object": "table"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario file."""
    schema = editors_document().model_json_schema(schema_generator=_EditorSchema)
    return {"$schema": GenerateJsonSchema.schema_dialect, **_without_titles(schema)}


def reference() -> str:
    """Return every key with its description, as Markdown with a table for each section.

    A table has the column of units, and that of the defaults' sources, where one of its keys has one.
    """
    schema = json_schema()
    lines: list[str] = []
    for place, node in _tables(schema, schema, ""):
        lines += [f"### {f'`{place}`' if place else 'Top level'}", "", node["description"], ""]
        rows = [(f"`{key}`", *_cells(schema, about)) for key, about in node["properties"].items()]
        kept = [n for n, title in enumerate(_TITLES) if title not in _OPTIONAL or any(row[n] for row in rows)]
        for row in (_TITLES, ("---",) * len(_TITLES), *rows):
            lines.append(f"| {' | '.join(row[n] for n in kept)} |")
        lines.append("")
    return "\n".join(lines)


class _EditorSchema(GenerateJsonSchema):
    """A schema generator without null: in TOML only an absent key is null, so no key accepts null or defaults to it."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def _cells(schema: dict[str, Any], about: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Return a key's description without its default, its type, unit and default, and the default's source."""
    kind, unit = _type(schema, about), ", ".join(dict.fromkeys(_units(about)))
    found = _DEFAULT.fullmatch(about["description"])
    if not found:
        return about["description"], kind, unit, "", ""
    meaning, default, source, required = found.groups()
    return meaning, kind, unit, default or f"required{required}", source or ""


def _units(about: dict[str, Any]) -> Iterator[str]:
    """Yield the units of a key's values, of an array's items and of each option."""
    if about.get("unit"):
        yield about["unit"]
    inside = [about["items"]] if "items" in about else about.get("oneOf") or about.get("anyOf") or []
    for inner in inside:
        yield from _units(inner)


def _type(schema: dict[str, Any], about: dict[str, Any]) -> str:
    """Return what a key's value is: its type with its bounds or an example."""
    options = about.get("oneOf") or about.get("anyOf")
    if options:
        return " or ".join(dict.fromkeys(_type(schema, option) for option in options))
    if "enum" in about or "const" in about:
        return ", ".join(f"`{json.dumps(value)}`" for value in about.get("enum", [about.get("const")]))
    if "items" in about:
        return f"list of: {_type(schema, about['items'])}"
    if "$ref" in about or "allOf" in about or "properties" in about:
        inner = _resolve(schema, about)
        return "table" if "properties" in inner else _type(schema, inner)
    kind = _KINDS.get(about.get("type", ""), "any value")
    bounds = " ".join(f"{word} {about[bound]:,.10g}" for bound, word in _BOUNDS.items() if bound in about)
    example = f"such as '{about['examples'][0]}'" if "examples" in about else ""
    return " ".join(filter(None, (kind, bounds, example)))


def _tables(schema: dict[str, Any], node: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each table's place in a file, such as `cluster.gpu` or `model.tables[]`, and its schema."""
    yield place, node
    for key, about in node["properties"].items():
        for option in about.get("oneOf", [about]):
            inner = _resolve(schema, option)
            if "properties" in inner:
                yield from _tables(schema, inner, f"{place}.{key}{'[]' * ('items' in option)}".removeprefix("."))


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

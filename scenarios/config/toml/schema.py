"""Formats the shape of a scenario file, as a JSON Schema for editors and as tables for readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from scenarios.config.toml.document import editors_document


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario file."""
    schema = editors_document().model_json_schema(schema_generator=_EditorSchema)
    return {"$schema": GenerateJsonSchema.schema_dialect, **_without_titles(schema)}


def reference() -> str:
    """Return every key with its description, as Markdown with a table for each section."""
    schema = json_schema()
    lines: list[str] = []
    for place, node in _tables(schema, schema, ""):
        lines += [f"### {f'`{place}`' if place else 'Top level'}", "", node["description"], ""]
        lines += ["| key | meaning |", "| --- | --- |"]
        lines += [f"| `{key}` | {about['description']} |" for key, about in node["properties"].items()]
        lines.append("")
    return "\n".join(lines)


class _EditorSchema(GenerateJsonSchema):
    """A schema generator without null: in TOML only an absent key is null, so no key accepts null or defaults to it."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


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

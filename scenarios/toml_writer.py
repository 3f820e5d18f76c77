"""Formats values as TOML, each on one line; the caller decides which keys a file has."""

from __future__ import annotations

import json
from collections.abc import Mapping


def toml_value(value: object) -> str:
    """Return a text, number, boolean, array or table as TOML."""
    if isinstance(value, str):  # JSON strings, but TOML has no surrogate escapes and requires DEL to be escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(str(key))} = {toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)

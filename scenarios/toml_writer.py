"""Values as TOML writes them, each on one line; which keys a file has is for its writer to say."""

from __future__ import annotations

import json
from collections.abc import Mapping


def toml_value(value: object) -> str:
    """Write a text, a number, a truth value, or an array or a table of them."""
    if isinstance(value, str):  # JSON's text, but TOML knows no surrogates, and wants DEL escaped, too
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(str(key))} = {toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)

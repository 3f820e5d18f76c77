"""Reads the recorded vectors; what they mean is left to the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "vectors" / "data"


def cases(name: str) -> list[dict[str, Any]]:
    """Every case of a file."""
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text())["cases"]
    assert found
    return found


def case_id(case: dict[str, Any]) -> str:
    return f"{case['id']}-{case['tag']}"

"""Reads a table's ids from a file: a sample a line, ids separated by spaces, an empty line for an empty bag.

Only a newline ends a line, and only ASCII's white space separates ids.
"""

from __future__ import annotations

from pathlib import Path

from scenarios.config.toml.look import utf8_content
from scenarios.config.toml.mistakes import toml_text


def read_bags(path: Path, rows: int | None = None) -> list[list[int]]:
    """The bags of `path` in order, each id in [0, rows); with rows None, any id of at least 0.

    Raises:
        ValueError: what was expected instead, as a phrase: of a file that is not there, a line that is no list of ids,
            an id outside, or a file without any id.
    """
    wanted = "ids of at least 0" if rows is None else f"ids from 0 to {rows - 1}"
    bags = []
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        wrong = next((word for word in words if not _is_id(word, rows)), None)
        if wrong is not None:
            raise ValueError(f"{wanted}, separated by spaces, but line {number} has {toml_text(wrong.decode())}")
        bags.append([int(word) for word in words])
    if not any(bags):
        raise ValueError("at least one id")
    return bags


def _lines(path: Path) -> list[bytes]:
    """As bytes, which split and count as digits what ASCII does."""
    lines = utf8_content(path).split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _is_id(word: bytes, rows: int | None) -> bool:
    if not (word.isdigit() and len(word) < 20):
        return False
    return rows is None or int(word) < rows

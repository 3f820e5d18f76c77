"""Reads a table's ids from a file: one sample per line, ids separated by spaces, an empty line for an empty bag.

Only a newline ends a line, and only ASCII white space separates ids.
"""

from __future__ import annotations

from pathlib import Path

from scenarios.config.toml.look import utf8_content
from scenarios.config.toml.mistakes import toml_text


def read_bags(path: Path, rows: int | None = None) -> list[list[int]]:
    """Return the bags of `path` in order, with ids in [0, rows); with rows None, any ids of at least 0.

    Raises:
        ValueError: the file is missing or has no ids, a line is no list of ids, or an id is out of range; the message
            is the expected phrase.
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
    """Return the file's lines as bytes, for which split and isdigit accept ASCII only."""
    lines = utf8_content(path).split(b"\n")
    # A file that ends with a newline has no further, empty line, which would be an empty bag.
    return lines if lines[-1] else lines[:-1]


def _is_id(word: bytes, rows: int | None) -> bool:
    # Longer numbers exceed 64 bits, and Python would take ever longer to read them.
    if not (word.isdigit() and len(word) < 20):
        return False
    return rows is None or int(word) < rows
